;; A priority policy that scores everything alike.
(module
  (;MORE_IMPORTS;)
  (;PRELUDE;)

  ;; The names of its functions, and where they are.
  (global $functions i32 (i32.const 2))
  (data (i32.const 1260) "scorepreempt")
  (data (i32.const 1300) "\ec\04\00\00\05\00\00\00\f1\04\00\00\07\00\00\00")

  (func (export "treadle:policy/priority-policy@1.0.0#score")
    (param $tokens i32) (param $rows i32)
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (local $i i32)
    (if (i32.ge_u (local.get $rows) (global.get $from_rows)) (then
      (;BEHAVIOUR;)
    ))
    (call $answer (local.get $rows) (f64.const 1)))

  (func (export "treadle:policy/priority-policy@1.0.0#preempt")
    (param $scores i32) (param $rows i32) (param i32 i32 i32 i32) (result i32)
    (call $zeros (local.get $rows)))

  (export "cabi_post_treadle:policy/priority-policy@1.0.0#score" (func $start_over))
  (export "cabi_post_treadle:policy/priority-policy@1.0.0#preempt" (func $start_over))
  (;MORE;)
)

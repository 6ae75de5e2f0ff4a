;; A placement policy that takes the first worker for everything.
(module
  (;MORE_IMPORTS;)
  (;PRELUDE;)

  ;; The names of its functions, and where they are.
  (global $functions i32 (i32.const 3))
  (data (i32.const 1260) "assignroutemigrate")
  (data (i32.const 1300) "\ec\04\00\00\06\00\00\00\f2\04\00\00\05\00\00\00\f7\04\00\00\07\00\00\00")

  (func (export "treadle:policy/placement-policy@1.0.0#assign")
    (param $groups i32) (param $rows i32)
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (local $i i32)
    (if (i32.ge_u (local.get $rows) (global.get $from_rows)) (then
      (;BEHAVIOUR;)
    ))
    (call $workers (local.get $rows) (i32.const 0)))

  (func (export "treadle:policy/placement-policy@1.0.0#route")
    (param $tokens i64) (param $cached i32) (param $rows i32)
    (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $answer (local.get $rows) (f64.const 1)))

  (func (export "treadle:policy/placement-policy@1.0.0#migrate")
    (param $at_worker i32) (param $rows i32)
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $list (local.get $at_worker) (local.get $rows)))

  (export "cabi_post_treadle:policy/placement-policy@1.0.0#assign" (func $start_over))
  (export "cabi_post_treadle:policy/placement-policy@1.0.0#route" (func $start_over))
  (export "cabi_post_treadle:policy/placement-policy@1.0.0#migrate" (func $start_over))
  (;MORE;)
)

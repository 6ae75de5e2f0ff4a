;; A placement policy that takes the first worker for everything.
(module
  (;MORE_IMPORTS;)
  (;PRELUDE;)

  ;; The names of its functions, and where they are.
  (global $functions i32 (i32.const 3))
  (data (i32.const 1260) "assignroutemigrate")
  (data (i32.const 1300) "\ec\04\00\00\06\00\00\00\f2\04\00\00\05\00\00\00\f7\04\00\00\07\00\00\00")

  (func (export "treadle:policy/placement-policy@1.0.0#assign")
    (param $columns i32) (result i32)
    (local $i i32) (local $groups i32) (local $rows i32)
    (local.set $groups (i32.load (local.get $columns)))
    (local.set $rows (i32.load offset=4 (local.get $columns)))
    (if (i32.ge_u (local.get $rows) (global.get $from_rows)) (then
      (;BEHAVIOUR;)
    ))
    (call $workers (local.get $rows) (i32.const 0)))

  (func (export "treadle:policy/placement-policy@1.0.0#route")
    (param $columns i32) (result i32)
    ;; After the context's tokens, an i64.
    (call $answer (i32.load offset=12 (local.get $columns)) (f64.const 1)))

  (func (export "treadle:policy/placement-policy@1.0.0#migrate")
    (param $columns i32) (result i32)
    (call $list
      (i32.load (local.get $columns)) (i32.load offset=4 (local.get $columns))))

  (export "cabi_post_treadle:policy/placement-policy@1.0.0#assign" (func $start_over))
  (export "cabi_post_treadle:policy/placement-policy@1.0.0#route" (func $start_over))
  (export "cabi_post_treadle:policy/placement-policy@1.0.0#migrate" (func $start_over))
  (;MORE;)
)

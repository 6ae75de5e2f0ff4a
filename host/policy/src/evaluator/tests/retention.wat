;; A policy of the world eviction: every second cache goes to host memory, and
;; who is paused first is said by the first extra column. Results lie at 512.
(module
  (memory (export "memory") 16)
  (global $heap (mut i32) (i32.const 4096))
  (data (i32.const 1024) "every-second-retention")
  (data (i32.const 1060) "1.0.0")
  (data (i32.const 1080) "offloads every second cache")
  (data (i32.const 1160) "weighpause-orderrestore-orderretain")
  (data (i32.const 1200) "\88\04\00\00\05\00\00\00\8d\04\00\00\0b\00\00\00\98\04\00\00\0d\00\00\00\a5\04\00\00\06\00\00\00")
  (data (i32.const 1240) "idle-ms")
  (data (i32.const 1248) "\d8\04\00\00\07\00\00\00")

  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $start i32)
    (local.set $start
      (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $start) (local.get 3)))
    (local.get $start))

  (func $list (param $start i32) (param $length i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.store (i32.const 516) (local.get $start))
    (i32.store (i32.const 520) (local.get $length))
    (i32.const 512))

  ;; A list of $rows numbers: those of $floats, 1 where there are none.
  (func $answer (param $rows i32) (param $floats i32) (param $known i32) (result i32)
    (local $start i32) (local $row i32) (local $value f64)
    (local.set $start (call $realloc (i32.const 0) (i32.const 0) (i32.const 8)
      (i32.mul (local.get $rows) (i32.const 8))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $row) (local.get $rows)))
        (local.set $value (f64.const 1))
        (if (i32.lt_u (local.get $row) (local.get $known)) (then
          (local.set $value (f64.promote_f32 (f32.load
            (i32.add (local.get $floats) (i32.mul (local.get $row) (i32.const 4))))))))
        (f64.store
          (i32.add (local.get $start) (i32.mul (local.get $row) (i32.const 8)))
          (local.get $value))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))
    (call $list (local.get $start) (local.get $rows)))

  (func (export "treadle:policy/plugin@1.0.0#describe") (result i32)
    (i32.store (i32.const 512) (i32.const 1024))
    (i32.store (i32.const 516) (i32.const 22))
    (i32.store (i32.const 520) (i32.const 1060))
    (i32.store (i32.const 524) (i32.const 5))
    (i32.store (i32.const 528) (i32.const 1080))
    (i32.store (i32.const 532) (i32.const 27))
    (i32.store (i32.const 536) (i32.const 1200))
    (i32.store (i32.const 540) (i32.const 4))
    (i32.store (i32.const 544) (i32.const 1248))
    (i32.store (i32.const 548) (i32.const (;COLUMNS;)))
    (i32.store (i32.const 552) (i32.const 0))
    (i32.store (i32.const 556) (i32.const 0))
    (i32.const 512))
  (func (export "treadle:policy/plugin@1.0.0#configure") (param i32 i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.const 512))
  (func (export "treadle:policy/plugin@1.0.0#snapshot") (result i32)
    (call $list (i32.const 1024) (i32.const 0)))
  (func (export "treadle:policy/plugin@1.0.0#restore") (param i32 i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.const 512))

  (func (export "treadle:policy/eviction-policy@1.0.0#weigh")
    (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $answer (local.get 1) (i32.const 0) (i32.const 0)))
  (func (export "treadle:policy/eviction-policy@1.0.0#pause-order")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $answer (local.get 1) (local.get 8) (local.get 9)))
  (func (export "treadle:policy/eviction-policy@1.0.0#restore-order")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $answer (local.get 1) (i32.const 0) (i32.const 0)))

  ;; The parameters lie in memory: three numbers of 8 bytes, then the lists.
  (func (export "treadle:policy/eviction-policy@1.0.0#retain") (param $args i32) (result i32)
    (local $rows i32) (local $row i32) (local $start i32)
    (local.set $rows (i32.load offset=28 (local.get $args)))
    (local.set $start (call $realloc (i32.const 0) (i32.const 0) (i32.const 1)
      (local.get $rows)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $row) (local.get $rows)))
        (i32.store8 (i32.add (local.get $start) (local.get $row))
          (i32.and (local.get $row) (i32.const 1)))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))
    (call $list (local.get $start) (local.get $rows)))

  (func $start_over (param i32) (global.set $heap (i32.const 4096)))
  (export "cabi_post_treadle:policy/plugin@1.0.0#describe" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#configure" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#snapshot" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#restore" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#weigh" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#pause-order" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#restore-order" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#retain" (func $start_over)))

;; A policy by hand: a bump allocator that starts over after each call, and answers
;; of ones. Results lie at 512; a list is ok (byte 0), pointer (4), length (8).
(module
  (import "treadle:policy/host@1.0.0" "log" (func $log (param i32 i32 i32)))
  (import "treadle:policy/host@1.0.0" "now-ms" (func $now_ms (result i64)))
  (import "treadle:policy/host@1.0.0" "random-u64" (func $random (result i64)))
  (import "treadle:policy/host@1.0.0" "config" (func $config (param i32)))
  (import "treadle:policy/host@1.0.0" "state-get" (func $state_get (param i32 i32 i32)))
  (import "treadle:policy/host@1.0.0" "state-set"
    (func $state_set (param i32 i32 i32 i32 i32)))
  (import "treadle:policy/host@1.0.0" "state-delete"
    (func $state_delete (param i32 i32) (result i32)))
  (memory (export "memory") 32)
  (global $heap (mut i32) (i32.const 4096))
  (data (i32.const 1024) "fixture")
  (data (i32.const 1040) "1.0.0")
  (data (i32.const 1056) "answers one for every row")
  (data (i32.const 1100) "odd")
  (data (i32.const 1120) "does not like seven rows")
  (data (i32.const 1160) "weighpause-orderrestore-order")
  (data (i32.const 1192) "\88\04\00\00\05\00\00\00\8d\04\00\00\0b\00\00\00\98\04\00\00\0d\00\00\00")

  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $start i32)
    (local.set $start
      (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $start) (local.get 3)))
    (local.get $start))

  (func $describe (export "treadle:policy/plugin@1.0.0#describe") (result i32)
    (i32.store (i32.const 512) (i32.const 1024))
    (i32.store (i32.const 516) (i32.const 7))
    (i32.store (i32.const 520) (i32.const 1040))
    (i32.store (i32.const 524) (i32.const 5))
    (i32.store (i32.const 528) (i32.const 1056))
    (i32.store (i32.const 532) (i32.const 25))
    (i32.store (i32.const 536) (i32.const 1192))
    (i32.store (i32.const 540) (i32.const 3))
    (i32.store (i32.const 544) (i32.const 0))
    (i32.store (i32.const 548) (i32.const 0))
    (i32.store (i32.const 552) (i32.const 0))
    (i32.store (i32.const 556) (i32.const 0))
    (i32.const 512))

  (func $configure (export "treadle:policy/plugin@1.0.0#configure")
    (param i32 i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.const 512))

  ;; Has learnt "odd"; a snapshot of seven bytes traps, one of eight is an error.
  (func $snapshot (export "treadle:policy/plugin@1.0.0#snapshot") (result i32)
    (call $list (i32.const 1100) (i32.const 3)))

  (func $restore (export "treadle:policy/plugin@1.0.0#restore")
    (param i32 i32) (result i32)
    (if (i32.eq (local.get 1) (i32.const 7)) (then (unreachable)))
    (if (i32.eq (local.get 1) (i32.const 8)) (then (return (call $error))))
    (call $log (i32.const 2) (local.get 0) (local.get 1))
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.const 512))

  ;; A list of $rows times $value.
  (func $answer (param $rows i32) (param $value f64) (result i32)
    (local $start i32) (local $end i32) (local $at i32)
    (local.set $start (call $realloc (i32.const 0) (i32.const 0) (i32.const 8)
      (i32.mul (local.get $rows) (i32.const 8))))
    (local.set $at (local.get $start))
    (local.set $end (i32.add (local.get $start) (i32.mul (local.get $rows) (i32.const 8))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (f64.store (local.get $at) (local.get $value))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br $next)))
    (call $list (local.get $start) (local.get $rows)))

  (func $list (param $start i32) (param $length i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.store (i32.const 516) (local.get $start))
    (i32.store (i32.const 520) (local.get $length))
    (i32.const 512))

  ;; The policy's own error.
  (func $error (result i32)
    (i32.store8 (i32.const 512) (i32.const 1))
    (i32.store (i32.const 516) (i32.const 1100))
    (i32.store (i32.const 520) (i32.const 3))
    (i32.store (i32.const 524) (i32.const 1120))
    (i32.store (i32.const 528) (i32.const 24))
    (i32.const 512))

  (func $recurse (param i64) (result i64)
    (i64.add (call $recurse (i64.add (local.get 0) (i64.const 1))) (local.get 0)))

  (func (export "treadle:policy/eviction-policy@1.0.0#weigh")
    (param i32 i32 i32 i32 i32 i32) (result i32)
    (local $i i32)
    (if (i32.eq (local.get 1) (i32.const 7)) (then
      (;PECULIARITY;)
    ))
    (call $answer (local.get 1) (f64.const 1)))

  (func (export "treadle:policy/eviction-policy@1.0.0#pause-order")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $answer (local.get 1) (f64.const 1)))

  (func (export "treadle:policy/eviction-policy@1.0.0#restore-order")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $answer (local.get 1) (f64.const 1)))

  ;; Never asked, because its description leaves it out.
  (func (export "treadle:policy/eviction-policy@1.0.0#retain") (param i32) (result i32)
    (unreachable))

  (func $start_over (param i32) (global.set $heap (i32.const 4096)))
  (export "cabi_post_treadle:policy/plugin@1.0.0#describe" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#configure" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#snapshot" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#restore" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#retain" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#weigh" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#pause-order" (func $start_over))
  (export "cabi_post_treadle:policy/eviction-policy@1.0.0#restore-order" (func $start_over)))

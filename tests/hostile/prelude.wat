  ;; What all hostile policies share: a bump allocator that starts over after each
  ;; call, and the interface that every world exports. They behave until they are
  ;; configured with a digit: then calls with at least that number of rows misbehave.
  (import "treadle:policy/host@1.0.0" "log" (func $log (param i32 i32 i32)))
  (import "treadle:policy/host@1.0.0" "now-ms" (func $now_ms (result i64)))
  (import "treadle:policy/host@1.0.0" "random-u64" (func $random (result i64)))
  (import "treadle:policy/host@1.0.0" "config" (func $config (param i32)))
  (import "treadle:policy/host@1.0.0" "state-get" (func $state_get (param i32 i32 i32)))
  (import "treadle:policy/host@1.0.0" "state-set" (func $state_set (param i32 i32 i32 i32 i32)))
  (import "treadle:policy/host@1.0.0" "state-delete" (func $state_delete (param i32 i32) (result i32)))
  (memory (export "memory") 32)
  (table $table 1 funcref)
  (global $heap (mut i32) (i32.const 4096))
  (global $from_rows (mut i32) (i32.const 0x7fffffff))
  (global $calls (mut i32) (i32.const 0))
  (data (i32.const 1024) "(;NAME;)")
  (data (i32.const 1100) "(;VERSION;)")
  (data (i32.const 1120) "misbehaves when it is configured to")
  (data (i32.const 1160) "odd")
  (data (i32.const 1170) "a line that is written again and again")
  (data (i32.const 1220) "\ff\fe no text")

  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $start i32)
    (;ALLOCATION;)
    (local.set $start
      (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $start) (local.get 3)))
    (local.get $start))

  ;; Results lie at 512; a result is ok (byte 0), a list in it pointer (4) and length (8).
  (func $done (result i32)
    (i32.store8 (i32.const 512) (i32.const 0))
    (i32.const 512))

  (func $list (param $start i32) (param $length i32) (result i32)
    (i32.store (i32.const 516) (local.get $start))
    (i32.store (i32.const 520) (local.get $length))
    (call $done))

  ;; The policy's own error, with a message of a given number of bytes.
  (func $error (param $length i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 1))
    (i32.store (i32.const 516) (i32.const 1160))
    (i32.store (i32.const 520) (i32.const 3))
    (i32.store (i32.const 524) (i32.const 1170))
    (i32.store (i32.const 528) (local.get $length))
    (i32.const 512))

  ;; A list of $rows times $value.
  (func $answer (param $rows i32) (param $value f64) (result i32)
    (local $start i32) (local $end i32) (local $at i32)
    (local.set $start (call $realloc (i32.const 0) (i32.const 0) (i32.const 8)
      (i32.mul (local.get $rows) (i32.const 8))))
    (local.set $at (local.get $start))
    (local.set $end (i32.add (local.get $start) (i32.mul (local.get $rows) (i32.const 8))))
    (block $filled
      (loop $next
        (br_if $filled (i32.ge_u (local.get $at) (local.get $end)))
        (f64.store (local.get $at) (local.get $value))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br $next)))
    (call $list (local.get $start) (local.get $rows)))

  ;; A list of $rows times the number $worker, 4 bytes each; $worker below 256.
  (func $workers (param $rows i32) (param $worker i32) (result i32)
    (local $start i32) (local $row i32)
    (local.set $start (call $realloc (i32.const 0) (i32.const 0) (i32.const 4)
      (i32.mul (local.get $rows) (i32.const 4))))
    (block $filled
      (loop $next
        (br_if $filled (i32.ge_u (local.get $row) (local.get $rows)))
        (i32.store
          (i32.add (local.get $start) (i32.mul (local.get $row) (i32.const 4)))
          (local.get $worker))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))
    (call $list (local.get $start) (local.get $rows)))

  ;; A list of $rows bytes of nothing.
  (func $zeros (param $rows i32) (result i32)
    (local $start i32)
    (local.set $start (call $realloc (i32.const 0) (i32.const 0) (i32.const 1)
      (local.get $rows)))
    (memory.fill (local.get $start) (i32.const 0) (local.get $rows))
    (call $list (local.get $start) (local.get $rows)))

  (func $recurse (param i64) (result i64)
    (i64.add (call $recurse (i64.add (local.get 0) (i64.const 1))) (local.get 0)))

  (func (export "treadle:policy/plugin@1.0.0#describe") (result i32)
    (;DESCRIBE;)
    (i32.store (i32.const 512) (i32.const 1024))
    (i32.store (i32.const 516) (i32.const (;NAME_LENGTH;)))
    (i32.store (i32.const 520) (i32.const 1100))
    (i32.store (i32.const 524) (i32.const (;VERSION_LENGTH;)))
    (i32.store (i32.const 528) (i32.const 1120))
    (i32.store (i32.const 532) (i32.const 35))
    (i32.store (i32.const 536) (i32.const 1300))
    (i32.store (i32.const 540) (global.get $functions))
    (i32.store (i32.const 544) (i32.const 0))
    (i32.store (i32.const 548) (i32.const 0))
    (i32.store (i32.const 552) (i32.const 0))
    (i32.store (i32.const 556) (i32.const 0))
    (i32.const 512))

  (func (export "treadle:policy/plugin@1.0.0#configure") (param $at i32) (param $length i32)
    (result i32)
    (local $end i32) (local $digit i32)
    (;CONFIGURE;)
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (block $read
      (loop $next
        (br_if $read (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
        (if (i32.lt_u (local.get $digit) (i32.const 10)) (then
          (global.set $from_rows (local.get $digit))
          (br $read)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (call $done))

  (func (export "treadle:policy/plugin@1.0.0#snapshot") (result i32)
    (;SNAPSHOT;)
    (call $list (i32.const 0) (i32.const 0)))

  (func (export "treadle:policy/plugin@1.0.0#restore") (param i32 i32) (result i32)
    (call $done))

  (func $start_over (param i32)
    (;AFTERWARDS;)
    (global.set $heap (i32.const 4096)))
  (export "cabi_post_treadle:policy/plugin@1.0.0#describe" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#configure" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#snapshot" (func $start_over))
  (export "cabi_post_treadle:policy/plugin@1.0.0#restore" (func $start_over))

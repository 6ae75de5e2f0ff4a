//! Code that takes long to compile, and large code that compiles quickly.
//!
//! A function with many values that all live through many branches is small, valid and
//! quick to run; the time of a register allocator grows with the product.

use std::fmt::Write as _;

use crate::text;

/// Values that live through the whole function.
const VALUES: usize = 2_000;
/// Branches of the function.
const BRANCHES: usize = 20_000;

/// A priority policy with a function that takes minutes and gigabytes to compile without
/// limits.
pub(crate) fn bomb() -> Vec<u8> {
    let function = function(VALUES, BRANCHES);
    text::build("priority", "compile-bomb", &[("MORE", &function)])
}

/// A priority policy with a large function that compiles quickly, like those of interpreters
/// in policies of scripting languages.
pub(crate) fn large_function() -> Vec<u8> {
    let function = format!("(func {})", "(drop (i32.const 1))".repeat(50_000));
    text::build("priority", "large-function", &[("MORE", &function)])
}

fn function(values: usize, branches: usize) -> String {
    let mut text = "(func (param i32) (result i64)\n".to_owned();
    // Writing to a string cannot fail.
    for value in 0..values {
        let _ = writeln!(text, "(local $v{value} i64)");
    }
    for value in 0..values {
        let at = value * 8;
        let _ = writeln!(
            text,
            "(local.set $v{value} (i64.load offset={at} (local.get 0)))"
        );
    }
    for branch in 0..branches {
        let (to, from) = (branch * 7 % values, branch * 13 % values);
        let _ = writeln!(
            text,
            "(if (i32.load offset={branch} (local.get 0)) (then
               (local.set $v{to} (i64.add (local.get $v{to}) (local.get $v{from})))))"
        );
    }
    text.push_str("(i64.const 0)\n");
    for value in 0..values {
        let _ = writeln!(text, "(i64.xor (local.get $v{value}))");
    }
    text.push_str(")\n");
    text
}

//! Components that take long to compile.
//!
//! A function with many values that all live through many branches is small, valid and
//! quick to run; the time of a register allocator grows with the product.

use std::fmt::Write as _;

use crate::text;

/// How large a compilation bomb is.
#[derive(Debug, Clone, Copy)]
pub struct Bomb {
    /// Functions.
    pub functions: usize,
    /// Values that live through a whole function.
    pub values: usize,
    /// Branches of a function.
    pub branches: usize,
}

/// A priority policy that also has functions which take long to compile.
pub fn bomb(size: Bomb) -> Vec<u8> {
    let mut functions = String::new();
    for index in 0..size.functions {
        function(&mut functions, index, size);
    }
    text::build("priority", "compile-bomb", &[("MORE", &functions)])
}

fn function(text: &mut String, index: usize, size: Bomb) {
    let Bomb {
        values, branches, ..
    } = size;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "(func (export \"bomb{index}\") (param i32) (result i64)"
    );
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
    let _ = writeln!(text, "(i64.const 0)");
    for value in 0..values {
        let _ = writeln!(text, "(i64.xor (local.get $v{value}))");
    }
    text.push_str(")\n");
}

/// Takes minutes where nothing stops it.
pub(crate) fn large() -> Vec<u8> {
    bomb(Bomb {
        functions: 1,
        values: 2_000,
        branches: 20_000,
    })
}

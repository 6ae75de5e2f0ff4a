//! Tests of web tokens.

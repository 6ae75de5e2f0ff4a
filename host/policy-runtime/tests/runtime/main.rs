//! The runtime from outside: faults, uploads, and the same scores with and without
//! the sandbox.

mod faults;
mod fixture;
mod parity;
mod upload;

//! Tests of the weight store through its public face.

mod fixture;
mod hostile;
mod interrupted;
mod others;
mod versions;

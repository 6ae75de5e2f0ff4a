//! Why an engine could not be calibrated.

use std::path::PathBuf;

/// Why an engine could not be calibrated. The text is what is wrong, then the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// No answer.
    #[error("no engine answers at {url}: {cause}; start one, or name another with --url")]
    Unreachable {
        /// Where.
        url: String,
        /// What happened.
        cause: String,
    },
    /// The engine lists no model.
    #[error("{url}/v1/models lists no model; name one with --model")]
    NoModel {
        /// Where.
        url: String,
    },
    /// The engine refuses a request.
    #[error("the engine answers {path} with {status}: {said}{remedy}")]
    Refused {
        /// What was asked.
        path: &'static str,
        /// The HTTP status.
        status: u16,
        /// The start of its answer.
        said: String,
        /// A possible remedy, with its separator; empty if none is known.
        remedy: &'static str,
    },
    /// The connection or the answer broke off.
    #[error("the engine broke an answer off: {0}; look at its log")]
    Broken(String),
    /// The answer does not count its tokens.
    #[error(
        "the engine's answers lack {0}; calibration needs the engine's own counts: serve with \
         stream_options.include_usage supported, or put a server in front that adds usage"
    )]
    NoUsage(&'static str),
    /// Too few tokens came.
    #[error(
        "answers end after {tokens} tokens, too few to time; the engine does not know ignore_eos: \
         give --model one that answers longer"
    )]
    EndsEarly {
        /// The most that one answer had.
        tokens: u64,
    },
    /// The engine does not report what it holds.
    #[error("the engine does not report {what}; set it with {option}")]
    Unknown {
        /// What.
        what: &'static str,
        /// The option that sets it.
        option: &'static str,
    },
    /// It takes too long.
    #[error(
        "not done after {seconds} s; lower --context-max, --batch-max or --repeats, or raise \
         --timeout-s"
    )]
    Slow {
        /// The bound.
        seconds: u64,
    },
    /// The measurements do not determine a speed.
    #[error(
        "{samples} measurements do not determine the speed of prefill; raise --context-max or --repeats, and \
         leave the engine alone meanwhile"
    )]
    NoFit {
        /// How many there are.
        samples: usize,
    },
    /// A file is not a profile.
    #[error("{}: {cause}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: treadle_engine_model::engine::ProfileError,
    },
    /// A file can't be read or written.
    #[error("{}: {cause}; check the path and its permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The workload does not fit the engine.
    #[error("{0}")]
    Workload(&'static str),
    /// The output is closed.
    #[error("the result could not be written: {0}")]
    Output(#[from] std::io::Error),
}

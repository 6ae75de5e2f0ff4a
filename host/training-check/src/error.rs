//! Why a run can't be checked.

use std::path::PathBuf;
use thiserror::Error;

/// Input that can't be read. A fault of a payload is no error: it is in the report.
#[derive(Debug, Error)]
pub enum Error {
    /// A file, a folder or the stream of events can't be read.
    #[error("`{path}` can't be read: {cause}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// A file is larger than the checker reads, or it is a pipe or a folder.
    #[error("`{path}` is no regular file of at most {limit} bytes; take it out of the folder")]
    File {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// A line of the events is too long.
    #[error("line {line} of the events has more than {limit} bytes; read smaller pages")]
    Line {
        /// Number of the line; the first is 1.
        line: u64,
        /// The limit.
        limit: u64,
    },
    /// More files or events than the checker reads.
    #[error("there are more than {limit} {what}; check a shorter run")]
    TooMany {
        /// Files or events.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Something is not the JSON that is expected there.
    #[error("{place}: {cause}; give it as treadle answered it")]
    Json {
        /// A file, a line or an event.
        place: String,
        /// What is wrong.
        cause: serde_json::Error,
    },
    /// An entry of the events has no number.
    #[error(
        "line {line} of the events has an entry without `seq`; give what GET /api/v1/events \
         answers, one page or event in a line"
    )]
    NoSeq {
        /// Number of the line.
        line: u64,
    },
    /// Events are not in the order of the journal.
    #[error("event {seq} comes after event {last}; sort them by `seq` and give each once")]
    Order {
        /// The event.
        seq: u64,
        /// The event before it.
        last: u64,
    },
    /// A payload is another one than before.
    #[error("the payload of batch {batch} changed while it was checked; check the run again")]
    Changed {
        /// The number in the file's name.
        batch: u64,
    },
    /// A file is the answer that a batch is not ready.
    #[error("`{file}` says that the batch is not ready; store only batches that are")]
    NotReady {
        /// The file.
        file: String,
    },
    /// A batch belongs to another job.
    #[error("`{file}` is of job `{found}`, not of `{job}`; name the folder of that job")]
    OtherJob {
        /// The file.
        file: String,
        /// The job that it names.
        found: String,
        /// The job that is checked.
        job: String,
    },
}

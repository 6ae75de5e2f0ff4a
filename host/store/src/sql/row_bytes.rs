//! Bytes of a row, without a copy of them.

use super::{Cells, Record};
use crate::StoreError;
use bytes::Bytes;

/// Shorter bytes are copied: a row that is kept for them would take more memory than they do.
const BORROWED_BYTES_MIN: usize = 16 << 10;

/// A row, as the bytes of one of its columns.
struct RowBytes<R> {
    row: R,
    column: &'static str,
}

impl<R: Record> AsRef<[u8]> for RowBytes<R> {
    fn as_ref(&self) -> &[u8] {
        // `bytes_of` has read them before, so that there is no error.
        let bytes = self.row.borrowed(self.column);
        bytes.ok().flatten().unwrap_or_default()
    }
}

/// The bytes of a column that is not NULL, where the database's driver put them: they keep the row.
/// `table` and `key` identify it in an error.
pub(super) fn bytes_of<R: Record>(
    table: &'static str,
    key: &'static [&'static str],
    row: R,
    column: &'static str,
) -> Result<Bytes, StoreError> {
    let cells = Cells {
        table,
        key,
        row: &row,
    };
    let bytes = cells.borrowed(column)?;
    if bytes.len() < BORROWED_BYTES_MIN {
        return Ok(Bytes::copy_from_slice(bytes));
    }
    Ok(Bytes::from_owner(RowBytes { row, column }))
}

//! Every error code is documented.

use treadle_wire::ErrorCode;

#[test]
fn every_code_has_its_row_with_its_status() {
    let page = include_str!("../../../docs/errors.md");
    for code in ErrorCode::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status());
        assert!(page.contains(&row), "docs/errors.md lacks the row {row}");
    }
}

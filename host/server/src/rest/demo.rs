//! The schedulers that a demo compares.

use super::Endpoint;
use crate::app::App;
use crate::demo_comparison::{DemoComparison, DemoView};
use axum::extract::State;
use axum::response::Json;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::get;
use treadle_endpoints::signature::Answer;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/demo", VIEW, show)
            .summary("The schedulers that `treadle demo` compares, while it runs")
            .details("`arms` is empty if the daemon is not part of a demo."),
    ]
}

async fn show(State(app): State<App>) -> Answer<DemoComparison> {
    let view = app.demo.get();
    Ok(Json(view.map(DemoView::show).unwrap_or_default()))
}

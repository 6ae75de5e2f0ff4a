//! Updates of weights that treadle drives.

use super::{client_of, gateway, pair};
use crate::training::real::{Engine, Kind};
use crate::training::real_weights::change_in_mid_stream;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_answers_with_the_weights_on_record_when_they_change() {
    let fixture = gateway().await;
    let engines = pair().map(|url| Engine {
        client: client_of(&url),
        // Its own path takes no name.
        model: String::new(),
        kind: Kind::Sglang,
    });
    change_in_mid_stream(&fixture.client, &engines).await;
    fixture.finish().await;
}

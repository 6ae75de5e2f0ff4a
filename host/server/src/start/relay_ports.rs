//! Ports at which a trainer controls single engines.

use super::StartError;
use crate::app::App;
use crate::rest::guard_of;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_config::Config;
use treadle_http::serve;
use treadle_relay::{Port, port_router};
use treadle_runs::{listen, serve_limits};

/// The ports that are served.
pub(super) struct RelayPorts {
    stop: watch::Sender<bool>,
    served: Vec<JoinHandle<()>>,
}

impl RelayPorts {
    /// Listens at each port of `engines.relay`.
    pub(super) async fn start(config: &Config, app: &App) -> Result<Self, StartError> {
        let (stop, stopped) = watch::channel(false);
        let mut served = Vec::new();
        let relay = app.relay_app();
        for port in app.relay_ports.iter() {
            let mut config = config.clone();
            config.server.listen = port.listen;
            let (listener, _) = listen(&config).await?;
            let own = Port {
                app: relay.clone(),
                job: port.job.clone(),
                url: port.engine.clone(),
            };
            let router = port_router(own, guard_of(app.auth.clone(), &app.gateway));
            let mut stopped = stopped.clone();
            let stop = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            let limits = serve_limits(&config);
            served.push(tokio::spawn(serve(listener, router, limits, stop)));
        }
        Ok(Self { stop, served })
    }

    /// Lets requests in flight end.
    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        for served in self.served {
            let _ = served.await;
        }
    }
}

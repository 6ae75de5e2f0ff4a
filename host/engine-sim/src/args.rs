//! The command line of `treadle engine-sim`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use tokio::net::TcpListener;
use treadle_engine_model::engine::EngineProfile;

use super::{
    EngineSim, EngineSimError, EngineSimOptions, Faults, HOST_TOKENS_PER_S, RANKS_MAX,
    TEMPLATE_TOKENS_MAX,
};

/// Serve a simulated inference engine over HTTP.
#[derive(Args, Clone, Debug)]
pub struct EngineSimArgs {
    /// Address to listen on; port 0 picks a free one and prints it.
    #[arg(long, default_value = "127.0.0.1:8100")]
    pub listen: SocketAddr,
    /// Engine profile to simulate.
    #[arg(long, default_value = "qwen3-32b-h100", value_parser = PossibleValuesParser::new(EngineProfile::NAMES))]
    pub profile: String,
    /// KV memory in tokens, instead of the profile's.
    #[arg(long)]
    pub kv_tokens: Option<u64>,
    /// Ranks of data parallelism, each with a KV memory of this size and a cache of its own, that
    /// step together as those of a mixture of experts do.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    pub ranks: u32,
    /// Host memory, in tokens of KV, to which the engine offloads evicted blocks itself, as vLLM's
    /// CPU offloading and SGLang's HiCache do; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub host_tokens: u64,
    /// Speed at which these blocks are loaded back, in tokens per second.
    #[arg(long, default_value_t = HOST_TOKENS_PER_S, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub host_tokens_per_s: u64,
    /// Tokens that a chat template adds in front of every chat, invisible to clients.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=TEMPLATE_TOKENS_MAX))]
    pub template_tokens: u32,
    /// Virtual seconds per real second.
    #[arg(long, default_value_t = 1.0)]
    pub time_scale: f64,
    /// Name of the model served.
    #[arg(long, default_value = "treadle-sim")]
    pub model: String,
    /// Names of adapters (LoRA) of the model to serve too, with commas between.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub adapters: Vec<String>,
    /// Seed of the generated text.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Answer at once without simulating the engine, as cheaply as possible.
    #[arg(long)]
    pub instant: bool,
    /// Tokens per event of a stream.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens_per_event: u32,
    /// KV memory of one token in bytes, which determines how long transfers of caches take.
    #[arg(long, default_value_t = EngineSimOptions::default().kv_bytes_per_token)]
    pub kv_bytes_per_token: u64,
    /// Host memory for copies of KV caches, in bytes.
    #[arg(long, default_value_t = EngineSimOptions::default().host_bytes_max)]
    pub host_bytes_max: u64,
    /// Inject a fault: close-after-events=N, garbage-sse, never-answer, no-responses,
    /// error-status=CODE, header-delay-ms=N; requests=N limits it to the first N requests. Can be
    /// given several times.
    #[arg(long = "fault", value_name = "FAULT")]
    pub faults: Vec<Faults>,
    /// Speed at which weights are loaded from a folder, in bytes per virtual second; a pause then
    /// stops generation, too. 0: a load takes no time, and a pause only keeps new requests back.
    #[arg(long, default_value_t = 0)]
    pub load_bytes_per_s: u64,
    /// Add a line of JSON to this file for each load of weights and each step that begins.
    #[arg(long, value_name = "FILE")]
    pub weights_record: Option<PathBuf>,
}

impl EngineSimArgs {
    /// The options of these arguments.
    pub fn options(&self) -> Result<EngineSimOptions, EngineSimError> {
        let profile = EngineProfile::named(&self.profile);
        let profile = profile.ok_or(EngineSimError::Option("profile is unknown"))?;
        Ok(EngineSimOptions {
            profile: profile.with_host_tokens(self.host_tokens, self.host_tokens_per_s),
            kv_tokens: self.kv_tokens,
            ranks: self.ranks,
            template_tokens: self.template_tokens,
            time_scale: self.time_scale,
            model: self.model.clone(),
            adapters: self.adapters.clone(),
            seed: self.seed,
            instant: self.instant,
            tokens_per_event: self.tokens_per_event,
            kv_bytes_per_token: self.kv_bytes_per_token,
            host_bytes_max: self.host_bytes_max,
            faults: self.faults.iter().fold(Faults::default(), Faults::with),
            load_bytes_per_s: self.load_bytes_per_s,
            weights_record: self.weights_record.clone(),
            ..EngineSimOptions::default()
        })
    }

    /// Serves until interrupted.
    pub async fn run(self) -> Result<(), EngineSimError> {
        let options = self.options()?;
        let cannot = |source| EngineSimError::Listen {
            address: self.listen.to_string(),
            source,
        };
        let listener = TcpListener::bind(self.listen).await.map_err(cannot)?;
        let handle = EngineSim::serve(listener, options)?;
        println!("simulated engine ({}) on {}", self.profile, handle.url());
        let _ = tokio::signal::ctrl_c().await;
        handle.shutdown().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: EngineSimArgs,
    }

    #[test]
    fn arguments_become_options() {
        let line = "x --profile instant --kv-tokens 4096 --fault garbage-sse --fault requests=2";
        let args = CommandLine::try_parse_from(line.split(' '))
            .expect("good arguments")
            .args;
        let options = args.options().expect("good options");
        assert_eq!(
            (&*options.profile.name, options.kv_tokens),
            ("instant", Some(4_096))
        );
        let faults = Faults {
            garbage_sse: true,
            requests: Some(2),
            ..Faults::default()
        };
        assert_eq!(options.faults, faults);
        assert_eq!(
            (options.profile.host_blocks, options.template_tokens),
            (0, 0)
        );
        let line = "x --host-tokens 32000 --host-tokens-per-s 5000 --template-tokens 40";
        let args = CommandLine::try_parse_from(line.split(' '))
            .expect("good arguments")
            .args;
        let options = args.options().expect("good options");
        let profile = &options.profile;
        assert_eq!(
            (profile.host_blocks, profile.host_tokens_per_s),
            (2_000, 5_000)
        );
        assert_eq!(options.template_tokens, 40);
        assert_eq!(options.ranks, 1);
        assert!(options.adapters.is_empty());
        let args = CommandLine::try_parse_from(["x", "--adapters", "a,b"]);
        let options = args.expect("good arguments").args.options();
        assert_eq!(options.expect("good options").adapters, ["a", "b"]);
        assert!(CommandLine::try_parse_from(["x", "--host-tokens-per-s", "0"]).is_err());
        assert!(CommandLine::try_parse_from(["x", "--ranks", "0"]).is_err());
        assert!(CommandLine::try_parse_from(["x", "--profile", "gpt-9"]).is_err());
        assert!(CommandLine::try_parse_from(["x", "--fault", "explode"]).is_err());
    }
}

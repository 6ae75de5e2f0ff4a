// Tests of the built console over a daemon with a running workload. They change it: they bind a
// policy, make and revoke a token, run an action, declare training jobs, load weights, and open
// programs with hostile names and messages.
// Some start daemons of their own, to kill one, beside stand-ins for an engine and for an identity
// provider, and in a demo: TREADLE or --binary says which, target/debug/treadle otherwise.
//
//   npm run test:e2e -- --daemon http://127.0.0.1:8300 --token tr_… --policy policy.wasm
//   npm run test:e2e -- --base http://127.0.0.1:8300 …     where the daemon serves the console
import "./pages.mjs";
import "./hostile.mjs";
import "./flows.mjs";
import "./outcomes.mjs";
import "./restart.mjs";
import "./oidc.mjs";
import "./admin.mjs";
import "./training.mjs";
import "./weights.mjs";
import "./tour.mjs";
import "./demo.mjs";
import "./whatif.mjs";
import "./workers.mjs";
import "./scale.mjs";

// The bindings of each world: active policies, their scope, canaries and shadows.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { call } from "../../api/client";
import { queryClient, whoami } from "../../api/queries";
import type { BindingShown, Canary, PolicyTotals, Shadow } from "../../api/types";
import { useRights } from "../../app/Account";
import { count, percent, short } from "../../format/number";
import { visibleText } from "../../format/text";
import { duration } from "../../format/time";
import { Confirm } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { Stat } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Tip } from "../../ui/Tip";
import { digestOf, shortPolicy } from "./names";
import { type Scope, scopeOf } from "./scope";

const QUESTIONS: Record<string, string> = {
  prediction: "how much of each program is still to come",
  priority: "the order of the run queue",
  placement: "which worker a program runs on",
  allocation: "how much of a resource each consumer gets",
  eviction: "which caches stay, who is paused and restored",
  reward: "what a finished program is worth",
  shaping: "how many members a group samples, which are cut and which are trained",
};

export function Bindings({
  bindings,
  statistics,
}: {
  bindings: BindingShown[];
  statistics: PolicyTotals | null;
}) {
  const { data: asker } = useQuery(whoami);
  if (!asker) return null;
  return (
    <>
      {statistics ? <Totals statistics={statistics} /> : null}
      <div className="bindings">
        {bindings.map((binding) => {
          const scope = scopeOf(binding, bindings, asker);
          return <Binding key={`${binding.world} ${scope.text}`} {...{ binding, scope }} />;
        })}
      </div>
    </>
  );
}

function Totals({ statistics }: { statistics: PolicyTotals }) {
  const { answered, asked_us } = statistics;
  return (
    <dl className="stats">
      <Stat label="Questions answered" value={short(answered)} note="since the daemon began" />
      <Stat label="Mean answer" value={answered > 0 ? duration(asked_us / answered) : "–"} />
      <Stat label="Slowest answer" value={duration(statistics.slowest_us)} />
      <Stat label="Left to the default" value={short(statistics.fallbacks)} />
      <Stat label="Faults" value={count(statistics.faults)} />
      <Stat label="Rolled back" value={count(statistics.rollbacks)} unit="times" />
    </dl>
  );
}

function PolicyLink({ policy }: { policy: string }) {
  const digest = digestOf(policy);
  if (!digest) {
    return (
      <span title={policy}>
        <Text value={shortPolicy(policy)} max={80} /> <span className="dim">built in</span>
      </span>
    );
  }
  return (
    <Link to="/policies/$plugin" params={{ plugin: digest }} title={policy}>
      <Text value={shortPolicy(policy)} max={80} />
    </Link>
  );
}

interface Bound {
  binding: BindingShown;
  scope: Scope;
}

function Binding({ binding, scope }: Bound) {
  const { canary, shadow } = binding;
  return (
    <section className="panel binding">
      <header className="panel-head">
        <h2>{binding.world}</h2>
        <span className="panel-note">{QUESTIONS[binding.world]}</span>
        <div className="panel-actions">
          <Badge>
            <Text value={`for ${scope.text}`} max={160} />
          </Badge>
        </div>
      </header>
      <div className="roles">
        <div className="role">
          <Badge tone="good">active</Badge>
          <strong>
            <PolicyLink policy={binding.policy} />
          </strong>
          <Config binding={binding} of="active" />
          {binding.previous ? (
            <span className="dim">
              before: <Text value={shortPolicy(binding.previous)} max={80} />
            </span>
          ) : null}
          {binding.previous && !canary ? <RollBack binding={binding} scope={scope} /> : null}
        </div>
        {canary ? <CanaryRole binding={binding} scope={scope} canary={canary} /> : null}
        {shadow?.policy ? (
          <ShadowRole {...{ binding, scope, shadow }} policy={shadow.policy} />
        ) : null}
      </div>
    </section>
  );
}

/** The configuration of a role's policy; nothing if it is not on record, or not shown. */
function Config({ binding, of }: { binding: BindingShown; of: "active" | "canary" | "shadow" }) {
  const config = binding.on_record?.[of]?.config;
  if (!config) return null;
  const entries = Object.entries(config).map(([key, value]) => `${key} ${JSON.stringify(value)}`);
  if (entries.length === 0) return <span className="dim">default configuration</span>;
  const text = entries.join(", ");
  return (
    <span className="mono dim" title={visibleText(text, 2000)}>
      <Text value={text} max={160} />
    </span>
  );
}

function CanaryRole({ binding, scope, canary }: Bound & { canary: Canary }) {
  const { incumbent, canary: trial } = canary.trial;
  const worse = canary.regret > 0;
  return (
    <div className="role">
      <Badge tone="warn">canary {percent(canary.share)}</Badge>
      <strong>
        <PolicyLink policy={canary.policy} />
      </strong>
      <Config binding={binding} of="canary" />
      <Tip text="Mean time from a step's arrival to its end, beside that of the active policy over the same time. A canary that is slower beyond chance, and by more than plugins.canary_regret_max_percent, is ended.">
        <button type="button" className={worse ? "hint kind bad" : "hint kind good"}>
          {percent(Math.abs(canary.regret), 1)} {worse ? "slower" : "faster"} steps
        </button>
      </Tip>
      <span className="dim">
        mean {duration(trial.mean * 1000)} over {count(trial.count)} steps, active{" "}
        {duration(incumbent.mean * 1000)} over {count(incumbent.count)}
      </span>
      <RoleActions binding={binding} scope={scope} policy={canary.policy} kind="canary" />
    </div>
  );
}

function ShadowRole({
  binding,
  scope,
  shadow,
  policy,
}: Bound & { shadow: Shadow; policy: string }) {
  return (
    <div className="role">
      <Badge tone="accent">shadow</Badge>
      <strong>
        <PolicyLink policy={policy} />
      </strong>
      <Config binding={binding} of="shadow" />
      <Tip text="How alike its answers are to those of the active policy: 100 % where it would have decided the same.">
        <button type="button" className="hint">
          {percent(shadow.agreement, 1)} agreement
        </button>
      </Tip>
      <span className="dim">
        {short(shadow.answered)} answers, same first choice in{" "}
        {percent(shadow.same_first / Math.max(1, shadow.answered), 1)}, {count(shadow.faults)}{" "}
        faults
      </span>
      <RoleActions binding={binding} scope={scope} policy={policy} kind="shadow" />
    </div>
  );
}

async function changed(text: string): Promise<void> {
  notify(text);
  await queryClient.invalidateQueries({ queryKey: ["bindings"] });
}

function RoleActions({
  binding,
  scope,
  policy,
  kind,
}: Bound & {
  policy: string;
  kind: "canary" | "shadow";
}) {
  const rights = useRights();
  if (!rights.manage || !scope.permitted) return null;
  const { world, job } = binding;
  const promote = async () => {
    await call("put", "/api/v1/bindings", {
      body: {
        policy: digestOf(policy) ?? policy,
        world,
        job,
        role: "active",
        config: binding.on_record?.[kind]?.config ?? null,
      },
    });
    await changed(`${shortPolicy(policy)} is active now.`);
  };
  const end = async () => {
    await call("delete", "/api/v1/bindings", { query: { world, job, role: kind } });
    await changed(`The ${kind} was ended.`);
  };
  return (
    <span className="role-actions">
      <Confirm
        title={`Promote ${shortPolicy(policy)}?`}
        text={`It decides for all programs of ${scope.text} from the next question on. It keeps the configuration that it was tried with. The present policy stays at hand for a rollback.`}
        action="Promote"
        onConfirm={promote}
        trigger={(open) => (
          <button type="button" className="button small" onClick={open}>
            Promote
          </button>
        )}
      />
      <Confirm
        title={`End this ${kind}?`}
        text="It gets no more questions."
        action="End it"
        onConfirm={end}
        trigger={(open) => (
          <button type="button" className="button small" onClick={open}>
            End
          </button>
        )}
      />
    </span>
  );
}

function RollBack({ binding, scope }: Bound) {
  const rights = useRights();
  if (!rights.manage || !scope.permitted || !binding.previous) return null;
  const { world, job, previous } = binding;
  const rollBack = async () => {
    await call("post", "/api/v1/bindings/rollback", { body: { world, job } });
    await changed(`${shortPolicy(previous)} is active again.`);
  };
  return (
    <span className="role-actions">
      <Confirm
        title={`Roll back to ${shortPolicy(previous)}?`}
        text={`It answers again for ${scope.text} from the next question on, in place of ${shortPolicy(binding.policy)}.`}
        action="Roll back"
        onConfirm={rollBack}
        trigger={(open) => (
          <button type="button" className="button small" onClick={open}>
            Roll back
          </button>
        )}
      />
    </span>
  );
}

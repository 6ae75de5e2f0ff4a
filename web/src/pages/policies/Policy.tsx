// One policy: what it is, how it fares, what it logs, and how to bind it.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { bindings, plugin, pluginLogs } from "../../api/queries";
import type { PluginDetails, VersionFigures } from "../../api/types";
import { useRights } from "../../app/Account";
import { bytes, count, percent, short } from "../../format/number";
import { fullTime, preciseTime } from "../../format/time";
import { Json } from "../../ui/Json";
import { Empty, Failure, Loading, PageHead, Panel, Stat } from "../../ui/Panel";
import { Tabs } from "../../ui/Tabs";
import { Text, TextBlock } from "../../ui/Text";
import { BindForm } from "./BindForm";
import { ComputeTime, Latency } from "./Latency";
import { isBound, Roles } from "./PluginTable";

export function Policy() {
  const { plugin: id } = useParams({ from: "/policies/$plugin" });
  const { data, error, isPending, refetch } = useQuery(plugin(id));
  if (isPending) return <Loading rows={8} />;
  if (!data) {
    return (
      <div className="page">
        <Failure error={error} retry={() => void refetch()} />
      </div>
    );
  }
  return <Known plugin={data} />;
}

function Known({ plugin }: { plugin: PluginDetails }) {
  const { tab } = useSearch({ from: "/policies/$plugin" });
  const navigate = useNavigate({ from: "/policies/$plugin" });
  const { data: bound } = useQuery(bindings);
  const { statistics } = plugin;
  return (
    <div className="page">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/policies" search={{ tab: "plugins" }}>
          Policies
        </Link>
        <span aria-hidden="true">/</span>
        <Link to="/policies" search={{ tab: "plugins", world: plugin.world }}>
          {plugin.world}
        </Link>
      </nav>
      <PageHead
        title={
          <>
            <Text value={plugin.name} max={100} />{" "}
            <span className="dim">
              <Text value={plugin.version} max={40} />
            </span>
          </>
        }
        note={<Text value={plugin.summary} max={300} />}
      >
        {isBound(plugin.digest, bound?.bindings ?? []) ? (
          <Roles digest={plugin.digest} bindings={bound?.bindings ?? []} />
        ) : null}
      </PageHead>
      {statistics ? <Figures statistics={statistics} /> : null}
      <Tabs
        label="About this policy"
        value={tab ?? "bind"}
        onChange={(next) => void navigate({ search: { tab: next }, replace: true })}
        tabs={[
          { id: "bind", label: "Configure and bind", content: <Bind plugin={plugin} /> },
          { id: "calls", label: "Calls", content: <Calls statistics={statistics} /> },
          { id: "log", label: "Log", content: <Log digest={plugin.digest} /> },
          { id: "about", label: "Component", content: <About plugin={plugin} /> },
        ]}
      />
    </div>
  );
}

function Figures({ statistics }: { statistics: VersionFigures }) {
  const { calls } = statistics;
  const faults = Object.values(statistics.faults).reduce((sum, value) => sum + value, 0);
  return (
    <dl className="stats">
      <Stat label="Calls" value={short(calls)} note={`${short(statistics.rows)} rows`} />
      <ComputeTime statistics={statistics} />
      <Stat
        label="Left to the default"
        value={count(statistics.fallbacks)}
        note={percent(statistics.fallbacks / Math.max(1, calls), 2)}
      />
      <Stat label="Faults" value={count(faults)} note={`${count(statistics.restarts)} restarts`} />
      <Stat label="Memory" value={bytes(statistics.memory_bytes)} />
    </dl>
  );
}

function Bind({ plugin }: { plugin: PluginDetails }) {
  const rights = useRights();
  if (!rights.manage) {
    return (
      <Empty icon="policies" title="Binding takes an operator's token">
        <p>It changes what running jobs do. Sign in at the bottom of the navigation.</p>
      </Empty>
    );
  }
  return <BindForm key={plugin.digest} plugin={plugin} />;
}

function Calls({ statistics }: { statistics: VersionFigures | null | undefined }) {
  if (!statistics) {
    return (
      <Empty icon="policies" title="It was not called lately">
        <p>Bind it as a shadow: its answers are compared, and never applied.</p>
      </Empty>
    );
  }
  return (
    <div className="grid-2">
      <Latency statistics={statistics} />
      <Panel title="Faults">
        {Object.keys(statistics.faults).length === 0 ? (
          <p className="soft">None.</p>
        ) : (
          <dl className="facts">
            {Object.entries(statistics.faults).map(([cause, value]) => (
              <div key={cause} className="fact">
                <dt>
                  <Text value={cause} max={80} />
                </dt>
                <dd>{count(value)}</dd>
              </div>
            ))}
          </dl>
        )}
        {statistics.latest_fault ? (
          <>
            <h3>The latest</h3>
            <TextBlock value={statistics.latest_fault} />
          </>
        ) : null}
      </Panel>
    </div>
  );
}

function Log({ digest }: { digest: string }) {
  const { data, error, isPending, refetch } = useQuery(pluginLogs(digest));
  if (isPending) return <Loading rows={4} />;
  if (!data) return <Failure error={error} retry={() => void refetch()} />;
  // Shows the newest lines first.
  const lines = data.lines.toReversed();
  if (lines.length === 0) {
    return (
      <Empty icon="events" title="The log is empty">
        <p>What the policy writes to its log appears here.</p>
      </Empty>
    );
  }
  return (
    <Panel
      title="Log"
      note={`newest first${data.dropped > 0 ? `; ${count(data.dropped)} lines were lost` : ""}`}
      flush
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable */}
      <ol className="log" tabIndex={0}>
        {lines.map((line) => (
          <li key={line.number}>
            <span className="dim" title={fullTime(line.now_ms * 1000)}>
              {preciseTime(line.now_ms * 1000)}
            </span>
            <span className={line.level === "error" ? "kind bad" : "soft"}>
              <Text value={line.level} max={10} />
            </span>
            <span>
              <Text value={line.message} max={2000} />
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function About({ plugin }: { plugin: PluginDetails }) {
  return (
    <div className="grid-2">
      <Panel title="Component">
        <dl className="facts">
          <dt>Digest</dt>
          <dd className="mono">{plugin.digest}</dd>
          <dt>Size</dt>
          <dd>{bytes(plugin.size_bytes)}</dd>
          <dt>Signed by</dt>
          <dd>{plugin.signed_by ? <Text value={plugin.signed_by} max={200} /> : "nobody"}</dd>
          <dt>Answers</dt>
          <dd className="mono">
            <Text value={plugin.functions.join(", ")} max={400} />
          </dd>
          <dt>Extra columns</dt>
          <dd className="mono">
            <Text value={plugin.columns.join(", ") || "none"} max={400} />
          </dd>
        </dl>
      </Panel>
      <Panel title="Schema of its configuration">
        <Json value={plugin.config_schema ?? null} />
      </Panel>
    </div>
  );
}

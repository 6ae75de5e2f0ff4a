// The demo's schedulers side by side, in the consoles of its daemons.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { demo } from "../../api/queries";
import type { DemoArm, DemoComparison } from "../../api/types";
import { count, percent, short } from "../../format/number";
import { sentence } from "../../format/text";
import { duration } from "../../format/time";
import { BASELINE, colorOfArm, isOver, linesOf, timesBaseline } from "../../model/demo";
import { Chart } from "../../ui/Chart";
import { Icon } from "../../ui/Icon";
import { Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";

const NUMBERS = ["no", "one", "two", "three", "four", "five"];

/** Nothing where the daemon is part of no demo. */
export function Demo() {
  const { data, error } = useQuery(demo);
  if (!data || data.arms.length === 0) return null;
  const { arms } = data;
  return (
    <Panel
      title={`Demo: ${NUMBERS[arms.length] ?? count(arms.length)} schedulers, the same agents, side by side`}
      actions={<Progress run={data} isLost={error !== null} />}
      flush
    >
      <div className="demo">
        <div className="demo-part">
          <p className="soft">Steps a minute, over the minutes of the run</p>
          <Lines run={data} />
        </div>
        <Arms arms={arms} areGone={isOver(data, error !== null)} />
        <p className="demo-part dim">
          <Text value={sentence(data.workload)} max={200} /> Engines are simulated, and all clocks
          run {short(data.time_scale)} times faster than real time: a minute here takes{" "}
          {short(60 / Math.max(1, data.time_scale))} s.
        </p>
      </div>
    </Panel>
  );
}

function Progress({ run, isLost }: { run: DemoComparison; isLost: boolean }) {
  const { minute, minutes, warmup_minutes } = run;
  const of = `minute ${minute.toFixed(1)} of ${short(minutes)}`;
  const over = isOver(run, isLost);
  return (
    <>
      <span className="panel-note">{over ? `${short(minutes)} minutes` : of}</span>
      {over || isLost ? (
        <Badge>{over ? "the run has ended" : "no answer"}</Badge>
      ) : minute < warmup_minutes ? (
        <Badge tone="warn">warming up</Badge>
      ) : (
        <Badge tone="good">running</Badge>
      )}
    </>
  );
}

function Lines({ run: { arms, minutes, warmup_minutes } }: { run: DemoComparison }) {
  const lines = useMemo(() => linesOf(arms), [arms]);
  const span = useMemo(
    () => ({ minutes, shaded: warmup_minutes, label: "warm-up" }),
    [minutes, warmup_minutes],
  );
  const series = arms.map((arm, at) => ({
    label: arm.name,
    color: colorOfArm(arm.name),
    values: lines.values[at] ?? [],
  }));
  return (
    <Chart
      label="Steps a minute of each scheduler over the minutes of the run; the table after it has the figures"
      times={lines.minutes}
      series={series}
      span={span}
      height={190}
    />
  );
}

function Arms({ arms, areGone }: { arms: DemoArm[]; areGone: boolean }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
    <div className="plain-scroll" tabIndex={0}>
      <table className="plain demo-arms">
        <caption className="visually-hidden">The schedulers' figures so far</caption>
        <thead>
          <tr>
            <th scope="col">Scheduler</th>
            <th scope="col" className="num">
              Steps/min
            </th>
            <th scope="col" className="num">
              × {BASELINE}
            </th>
            <th scope="col" className="num">
              In cache
            </th>
            <th scope="col" className="num">
              Median step
            </th>
            <th scope="col" className="num">
              99th percentile
            </th>
            <th scope="col" className="num">
              Steps
            </th>
          </tr>
        </thead>
        <tbody>
          {arms.map((arm) => (
            <Row
              key={arm.name}
              arm={areGone ? { ...arm, url: null } : arm}
              times={timesBaseline(arm, arms)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ arm, times }: { arm: DemoArm; times: number | null }) {
  return (
    <tr aria-current={arm.is_own ? "true" : undefined}>
      <th scope="row">
        <span className={`swatch ${colorOfArm(arm.name)}`} aria-hidden="true" />
        <Name arm={arm} />
      </th>
      <td className="num">
        <strong>{arm.points.length > 0 ? short(arm.steps_per_min) : "–"}</strong>
      </td>
      <td className="num">
        {times === null ? (
          "–"
        ) : (
          <Badge tone={times > 1 ? "good" : "neutral"}>{`×${times.toFixed(2)}`}</Badge>
        )}
      </td>
      <td className="num">{percent(arm.hit_rate)}</td>
      <td className="num">{seconds(arm.step_p50_s)}</td>
      <td className="num">{seconds(arm.step_p99_s)}</td>
      <td className="num">{count(arm.answered)}</td>
    </tr>
  );
}

/** The scheduler's name, which leads to its console unless that is this one. */
function Name({ arm }: { arm: DemoArm }) {
  const name = <Text value={arm.name} max={40} />;
  if (arm.is_own) {
    return (
      <>
        {name} <Badge>this console</Badge>
      </>
    );
  }
  if (!arm.url || !/^https?:\/\//.test(arm.url)) return name;
  return (
    <a href={`${arm.url}/`} target="_blank" rel="noreferrer">
      {name}
      <span className="visually-hidden">'s console, in a new tab</span>
      <Icon name="out" />
    </a>
  );
}

function seconds(value: number | null | undefined): string {
  return duration(typeof value === "number" ? value * 1e6 : null);
}

// The tokens of a sequence or a step, a page at a time.
import { useNavigate, useSearch } from "@tanstack/react-router";
import {
  Fragment,
  type KeyboardEvent,
  memo,
  type SyntheticEvent,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import type { MemberSteps } from "../../api/sample";
import { count, percent } from "../../format/number";
import {
  colorOf,
  logprobText,
  PAGE_TOKENS,
  pageOf,
  rowOf,
  SCALE,
  type Token,
  tokenText,
} from "../../model/sample";
import { Panel } from "../../ui/Panel";

const ROUTE = "/training/$job/members/$program";

export function Tokens({ steps }: { steps: MemberSteps }) {
  const { of, at } = useSearch({ from: ROUTE });
  const navigate = useNavigate({ from: ROUTE });
  const chosen = useMemo(() => rowOf(steps, of), [steps, of]);
  const length = chosen?.row.ids.length ?? 0;
  const place = Math.min(Math.max(0, Math.trunc(Number(at ?? 0)) || 0), Math.max(0, length - 1));
  const from = place - (place % PAGE_TOKENS);
  const tokens = useMemo(
    () => (chosen ? pageOf(steps, chosen.row, from) : []),
    [steps, chosen, from],
  );
  if (!chosen) return null;
  const show = (name: string, position: number) =>
    void navigate({
      search: (before) => ({ ...before, of: name, at: String(position) }),
      replace: true,
      resetScroll: false,
    });
  return (
    <Panel
      title="Tokens"
      note="Token ids; treadle does not decode them"
      actions={
        <>
          <Names steps={steps} name={chosen.name} choose={(name) => show(name, 0)} />
          <Pager length={length} from={from} show={(position) => show(chosen.name, position)} />
        </>
      }
    >
      <Legend />
      <Cells tokens={tokens} place={at === undefined ? null : place} />
    </Panel>
  );
}

function Names({
  steps: { sequences },
  name,
  choose,
}: {
  steps: MemberSteps;
  name: string;
  choose: (name: string) => void;
}) {
  const step = name.startsWith("step-") ? name.slice("step-".length) : null;
  return (
    <select
      className="input tokens-names"
      aria-label="Tokens of"
      value={name}
      onChange={(event) => choose(event.target.value)}
    >
      {step !== null ? <option value={name}>Step {step}</option> : null}
      {sequences.map(({ ids }, number) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: sequences have no other name
        <option key={number} value={number}>
          Sequence {number}, {count(ids.length)} tokens
        </option>
      ))}
    </select>
  );
}

function Pager({
  length,
  from,
  show,
}: {
  length: number;
  from: number;
  show: (position: number) => void;
}) {
  const to = Math.min(length, from + PAGE_TOKENS);
  return (
    <>
      <button
        type="button"
        className="button small"
        disabled={from === 0}
        onClick={() => show(from - PAGE_TOKENS)}
      >
        Back
      </button>
      <span className="dim nowrap">
        {count(from)} to {count(Math.max(from, to - 1))} of {count(length)}
      </span>
      <button
        type="button"
        className="button small"
        disabled={to >= length}
        onClick={() => show(to)}
      >
        Next
      </button>
    </>
  );
}

function Legend() {
  return (
    <div className="legend tokens-legend">
      <span>Log-probability (probability):</span>
      {SCALE.map((label, at) => (
        <span key={label} className="legend-item">
          <span className={`swatch logprob-${at}`} aria-hidden="true" />
          {label}
        </span>
      ))}
      <span className="legend-item">
        <span className="swatch token-context" aria-hidden="true" />
        context, not trained
      </span>
    </div>
  );
}

interface Shown {
  token: Token;
  left: number;
  top: number;
}

/** The cells of a page. One is in the order of the Tab key; the arrow keys move on from there. */
function Cells({ tokens, place }: { tokens: Token[]; place: number | null }) {
  const holder = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<Shown | null>(null);
  const first = tokens[0]?.at ?? 0;
  const entry = place ?? first;
  // biome-ignore lint/correctness/useExhaustiveDependencies: other tokens at a place are to be shown
  useEffect(() => {
    setShown(null);
    // A turn begins inside a page; turning a page must not move the focus.
    if (place === null || place % PAGE_TOKENS === 0) return;
    holder.current?.querySelector<HTMLElement>(`[data-at="${place}"]`)?.focus();
  }, [place, tokens]);
  const show = ({ target }: SyntheticEvent) => {
    const cell = (target as HTMLElement).closest<HTMLElement>("[data-at]");
    const token = cell ? tokens[Number(cell.dataset.at) - first] : undefined;
    if (cell && token) {
      const top = cell.offsetTop + cell.offsetHeight + 4;
      setShown({ token, left: cell.offsetLeft, top });
    }
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: its arrow keys move between tokens
    <div
      className="tokens"
      ref={holder}
      onMouseOver={show}
      onFocus={show}
      onMouseLeave={() => setShown(null)}
      onBlur={() => setShown(null)}
      onKeyDown={moveFocus}
    >
      <CellList tokens={tokens} entry={entry} />
      {shown ? <About shown={shown} /> : null}
    </div>
  );
}

const CellList = memo(function CellList({ tokens, entry }: { tokens: Token[]; entry: number }) {
  return tokens.map((token) => (
    <Fragment key={token.at}>
      {token.mark ? <span className="token-mark">{token.mark}</span> : null}
      <button
        type="button"
        className={`token ${classOf(token)}`}
        data-at={token.at}
        tabIndex={token.at === entry ? 0 : -1}
        aria-label={tokenText(token)}
      >
        {token.id}
      </button>
    </Fragment>
  ));
});

function classOf({ by }: Token): string {
  return by ? `logprob-${colorOf(by.logprob) ?? "unknown"}` : "token-context";
}

function About({ shown: { token, left, top } }: { shown: Shown }) {
  const { id, at, by } = token;
  return (
    <div
      className="token-about"
      style={{ left: `clamp(0px, ${left}px, 100% - 210px)`, top }}
      aria-hidden="true"
    >
      <dl className="facts">
        <dt>Id</dt>
        <dd className="num">{id}</dd>
        <dt>Position</dt>
        <dd className="num">{count(at)}</dd>
        <dt>Log-probability</dt>
        <dd className="num">{by ? logprobText(by.logprob) : "context"}</dd>
        {by ? (
          <>
            <dt>Probability</dt>
            <dd className="num">{percent(by.logprob === null ? null : Math.exp(by.logprob), 1)}</dd>
            <dt>Version</dt>
            <dd className="num">{by.versions}</dd>
            <dt>Step</dt>
            <dd className="num">{count(by.step)}</dd>
          </>
        ) : null}
      </dl>
    </div>
  );
}

function moveFocus(event: KeyboardEvent<HTMLDivElement>): void {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const at = Number((event.target as HTMLElement).dataset.at);
  if (step === undefined || Number.isNaN(at)) return;
  const next = event.currentTarget.querySelector<HTMLElement>(`[data-at="${at + step}"]`);
  if (!next) return;
  event.preventDefault();
  next.focus();
}

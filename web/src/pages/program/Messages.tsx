// What a step was asked and what it answered, where that is kept.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { bodies } from "../../api/queries";
import type { KeptBody } from "../../api/types";
import { bytes } from "../../format/number";
import { messagesOf } from "../../model/messages";
import { Empty, Failure, Loading } from "../../ui/Panel";
import { Text, TextBlock } from "../../ui/Text";

export function Messages({ program, step }: { program: string; step: number }) {
  const { data, error, isPending, refetch } = useQuery(bodies(program, step));
  const [raw, setRaw] = useState(false);
  if (isPending) return <Loading rows={3} />;
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (data.bodies.length === 0) {
    return (
      <Empty icon="programs" title="Messages were not kept">
        <p>
          Set <code>payloads.keep</code> to <code>answers</code> or <code>all</code>, and restart
          the daemon: what comes after that is shown here.
        </p>
      </Empty>
    );
  }
  return (
    <>
      <label className="check">
        <input type="checkbox" checked={raw} onChange={(event) => setRaw(event.target.checked)} />
        As sent
      </label>
      {data.bodies.map((body) => (
        <Body key={`${body.kind}-${body.at_us}`} body={body} raw={raw} />
      ))}
    </>
  );
}

const LATEST = 2;

function Body({ body, raw }: { body: KeptBody; raw: boolean }) {
  const messages = useMemo(() => messagesOf(body.text), [body.text]);
  const [all, setAll] = useState(false);
  const earlier = all || !messages ? 0 : Math.max(0, messages.length - LATEST);
  return (
    <section className="form">
      <h3>
        <Text value={body.kind} max={40} /> <span className="dim">{bytes(body.bytes)}</span>
      </h3>
      {raw || !messages ? (
        <TextBlock value={body.text} />
      ) : (
        <>
          {earlier > 0 ? (
            <button type="button" className="button small" onClick={() => setAll(true)}>
              Show {earlier} earlier messages
            </button>
          ) : null}
          {messages.slice(earlier).map((message, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: messages have no other name
            <div key={at + earlier} className="message">
              <div className="field-label">
                <Text value={message.role} max={40} />
              </div>
              <TextBlock value={message.text} />
            </div>
          ))}
        </>
      )}
    </section>
  );
}

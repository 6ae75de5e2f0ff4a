// Tokens: make, rotate, revoke.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "../../api/client";
import { queryClient, tokens } from "../../api/queries";
import type { TokenView } from "../../api/types";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Icon } from "../../ui/Icon";
import { copyText, notify } from "../../ui/notices";
import { Command, Failure, Loading, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { NewToken } from "./NewToken";

export function Tokens() {
  const { data, error, isPending, refetch } = useQuery(tokens);
  const [making, setMaking] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  if (isPending) return <Loading rows={5} />;
  if (!data) return <Failure error={error} retry={() => void refetch()} />;
  return (
    <Panel
      title="Tokens"
      note="newest first"
      flush
      actions={
        <button type="button" className="button primary small" onClick={() => setMaking(true)}>
          Make a token
        </button>
      }
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Name</th>
              <th>Scope</th>
              <th>Tenant</th>
              <th>State</th>
              <th className="num">Last used</th>
              <th className="num">Made</th>
              <th>
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.tokens.map((token) => (
              <Row key={token.id} token={token} onSecret={setSecret} />
            ))}
          </tbody>
        </table>
      </div>
      <NewToken open={making} onOpenChange={setMaking} onSecret={setSecret} />
      <SecretDialog secret={secret} onClose={() => setSecret(null)} />
    </Panel>
  );
}

function SecretDialog({ secret, onClose }: { secret: string | null; onClose: () => void }) {
  return (
    <Dialog
      open={secret !== null}
      onOpenChange={onClose}
      title="The token"
      description="It is shown once. Copy it now; the daemon keeps only its hash."
    >
      <Command>{secret ?? ""}</Command>
      <footer className="dialog-foot">
        <button
          type="button"
          className="button"
          onClick={() => void copyText(secret ?? "", "Token")}
        >
          <Icon name="copy" />
          Copy
        </button>
        <button type="button" className="button primary" onClick={onClose}>
          Done
        </button>
      </footer>
    </Dialog>
  );
}

function State({ token }: { token: TokenView }) {
  if (token.revoked_at_us) return <Badge tone="bad">revoked</Badge>;
  if (token.expires_at_us && token.expires_at_us < Date.now() * 1000)
    return <Badge tone="warn">expired</Badge>;
  return <Badge tone="good">valid</Badge>;
}

function Row({ token, onSecret }: { token: TokenView; onSecret: (secret: string) => void }) {
  const refresh = () => queryClient.invalidateQueries({ queryKey: ["tokens"] });
  const path = { path: { token: token.id } };
  const revoke = async () => {
    await call("delete", "/api/v1/tokens/{token}", path);
    notify(`${token.name} was revoked.`);
    await refresh();
  };
  const rotate = async () => {
    const answer = await call("post", "/api/v1/tokens/{token}/rotate", path);
    if (answer.secret) onSecret(answer.secret);
    await refresh();
  };
  return (
    <tr>
      <td>
        <Text value={token.name} max={80} />
        <div className="dim mono">{token.id}</div>
      </td>
      <td>{token.scope}</td>
      <td>{token.tenant === "*" ? "whole daemon" : <Text value={token.tenant} max={60} />}</td>
      <td>
        <State token={token} />
      </td>
      <td className="num">
        {token.last_used_at_us ? <Time us={token.last_used_at_us} clock="wall" /> : "never"}
      </td>
      <td className="num">
        <Time us={token.created_at_us} clock="wall" />
      </td>
      <td className="num nowrap">
        {token.revoked_at_us ? null : (
          <span className="role-actions">
            <Confirm
              title={`Rotate ${token.name}?`}
              text="It gets a new secret. The one before stays good for a while."
              action="Rotate"
              onConfirm={rotate}
              trigger={(open) => (
                <button type="button" className="button small" onClick={open}>
                  Rotate
                </button>
              )}
            />
            <Confirm
              title={`Revoke ${token.name}?`}
              text="It ends at once, for everyone who uses it. This can't be undone."
              action="Revoke"
              danger
              onConfirm={revoke}
              trigger={(open) => (
                <button type="button" className="button small danger" onClick={open}>
                  Revoke
                </button>
              )}
            />
          </span>
        )}
      </td>
    </tr>
  );
}

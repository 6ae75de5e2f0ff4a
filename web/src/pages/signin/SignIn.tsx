// Takes a token for this tab and checks it with the daemon.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { waysToSignIn } from "../../api/queries";
import { begun } from "../../api/session";
import { notify } from "../../ui/notices";
import { Command } from "../../ui/Panel";
import { Text } from "../../ui/Text";

export function SignIn() {
  const { then, failed } = useSearch({ from: "/sign-in" });
  const ways = useQuery(waysToSignIn);
  const own = then?.startsWith("/") && !then.startsWith("//") ? then : "/";
  const { basepath } = useRouter();
  const back = own.startsWith(`${basepath}/`) ? own : basepath + own;
  const navigate = useNavigate();
  const [value, setValue] = useState("");
  const [error, setError] = useState<string | null>(failed ?? null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const me = await call("post", "/api/v1/session", { body: { token: value.trim() } });
      begun();
      notify(`Signed in as ${me.who ?? "nobody"}, ${me.scope ?? "no scope"}.`);
      await navigate({ href: own });
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
  };
  return (
    <div className="sign-in">
      <form className="panel sign-in-card" onSubmit={(event) => void submit(event)}>
        <h1>Sign in</h1>
        <p className="soft">
          A token decides what you may do here. This browser stays signed in until you sign out, or
          the token ends.
        </p>
        <label className="field">
          <span className="field-label">Token</span>
          <input
            className="input mono"
            type="password"
            autoComplete="off"
            spellCheck={false}
            placeholder="tr_…"
            required
            value={value}
            onChange={(event) => setValue(event.target.value)}
            aria-invalid={error !== null}
            aria-describedby={error ? "sign-in-error" : undefined}
          />
        </label>
        {error ? (
          <p className="field-error" id="sign-in-error" role="alert">
            <Text value={error} max={1000} />
          </p>
        ) : null}
        <button type="submit" className="button primary">
          Sign in
        </button>
        {ways.data?.provider ? (
          <a className="button" href={`${ways.data.provider}?back=${encodeURIComponent(back)}`}>
            Sign in with your identity provider
          </a>
        ) : null}
        <details>
          <summary>Where do I get one?</summary>
          <p className="soft">
            The daemon's first start leaves an admin's token in <code>.treadle/admin-token</code>.
            An admin makes others under Admin, or with
          </p>
          <Command>treadle access tokens create NAME --scope operator</Command>
        </details>
      </form>
    </div>
  );
}

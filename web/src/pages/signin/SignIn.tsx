// The ways to sign in: with the identity provider, where there is one, and with a token.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { waysToSignIn, whoami } from "../../api/queries";
import { begun } from "../../api/session";
import type { Whoami } from "../../api/types";
import { sentence } from "../../format/text";
import { Icon } from "../../ui/Icon";
import { notify } from "../../ui/notices";
import { Command, Loading } from "../../ui/Panel";
import { Text } from "../../ui/Text";

/** Longest reason that is shown: it is in the address, and anyone can write a link. */
const REASON_MAX = 300;

export function SignIn() {
  const { then, failed } = useSearch({ from: "/sign-in" });
  const { data: ways, isPending } = useQuery(waysToSignIn);
  const { data: me } = useQuery(whoami);
  const [tried, setTried] = useState(false);
  const own = then?.startsWith("/") && !then.startsWith("//") ? then : "/";
  const { basepath } = useRouter();
  const back = own.startsWith(`${basepath}/`) ? own : basepath + own;
  const provider = ways?.provider;
  const known = me && me.who !== "anonymous" ? me : null;
  return (
    <div className="sign-in">
      <section className="panel sign-in-card">
        <h1>Sign in</h1>
        {failed && !tried ? <Failed why={failed} /> : null}
        {known ? <SignedIn me={known} back={back} /> : null}
        {isPending ? (
          <Loading rows={2} />
        ) : (
          <>
            {provider ? <WithProvider from={provider} back={back} isNew={!known} /> : null}
            <WithToken own={own} isOnly={!provider} isNew={!known} onTry={() => setTried(true)} />
          </>
        )}
      </section>
    </div>
  );
}

/** Why the daemon has sent the browser back here. */
function Failed({ why }: { why: string }) {
  return (
    <div className="problem" role="alert">
      <Icon name="warning" />
      <p>
        <strong>The sign-in failed.</strong> <Text value={sentence(why)} max={REASON_MAX} />
      </p>
    </div>
  );
}

function SignedIn({ me, back }: { me: Whoami; back: string }) {
  return (
    <p className="soft">
      You are signed in as <Text value={me.who} max={60} />, {me.scope ?? "no scope"} of the tenant{" "}
      <Text value={me.tenant} max={40} />. <a href={back}>Go on</a>, or sign in as somebody else:
    </p>
  );
}

function WithProvider({ from, back, isNew }: { from: string; back: string; isNew: boolean }) {
  return (
    <>
      {isNew ? (
        <p className="soft">
          Your organisation's identity provider says who you are, and what you may do here.
        </p>
      ) : null}
      <a className="button primary large" href={`${from}?back=${encodeURIComponent(back)}`}>
        Sign in with your identity provider
      </a>
      <p className="sign-in-or">or with a token</p>
    </>
  );
}

interface WithTokenProps {
  own: string;
  isOnly: boolean;
  isNew: boolean;
  onTry: () => void;
}

function WithToken({ own, isOnly, isNew, onTry }: WithTokenProps) {
  const navigate = useNavigate();
  const [value, setValue] = useState("");
  const [error, setError] = useState<string | null>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    onTry();
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
    <form className="sign-in-form" onSubmit={(event) => void submit(event)}>
      {isOnly && isNew ? (
        <p className="soft">
          A token decides what you may do here. This browser stays signed in until you sign out, or
          the token ends.
        </p>
      ) : null}
      <label className="field">
        <span className="field-label">Token</span>
        <input
          className="input mono large"
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
          <Text value={sentence(error)} max={1000} />
        </p>
      ) : null}
      <button type="submit" className={isOnly ? "button large primary" : "button large"}>
        Sign in
      </button>
      <details>
        <summary>Where do I get a token?</summary>
        <p className="soft">
          The daemon's first start leaves an admin's token in <code>.treadle/admin-token</code>. An
          admin makes others under Admin, or with
        </p>
        <Command>treadle access tokens create NAME --scope operator</Command>
      </details>
    </form>
  );
}

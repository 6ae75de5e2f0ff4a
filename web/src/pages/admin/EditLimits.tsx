// Changes a tenant's limits, once what changes was looked at.
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { queryClient } from "../../api/queries";
import type { TenantLimits } from "../../api/types";
import { plural } from "../../format/number";
import { visibleText } from "../../format/text";
import { changesOf, LIMITS, type LimitChange, textsOf } from "../../model/limits";
import { Dialog, DialogFoot } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { SchemaFields } from "../../ui/SchemaFields";

interface Props {
  tenant: string;
  limits: TenantLimits;
  onClose: () => void;
}

export function EditLimits({ tenant, limits, onClose }: Props) {
  const [texts, setTexts] = useState(() => textsOf(limits));
  const [reviewing, setReviewing] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const { changed, changes, errors } = changesOf(limits, texts);
  const name = visibleText(tenant, 60);
  const change = async () => {
    setError(null);
    try {
      const path = { tenant };
      await call("put", "/api/v1/tenants/{tenant}", {
        path,
        body: { limits: changed as TenantLimits },
      });
      notify(`${plural(changes.length, "limit")} of ${name} changed.`);
      await queryClient.invalidateQueries({ queryKey: ["tenants"] });
      onClose();
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (reviewing) void change();
    else setReviewing(true);
  };
  return (
    <Dialog
      open
      onOpenChange={onClose}
      wide={!reviewing}
      title={
        reviewing ? `Change ${plural(changes.length, "limit")} of ${name}?` : `Limits of ${name}`
      }
      description={
        reviewing
          ? "They hold from the next request on. What runs beyond a lower limit runs on."
          : "An empty field is no limit, or an equal share of the daemon's where there are several tenants."
      }
    >
      <form className="form" onSubmit={submit}>
        {reviewing ? (
          <Changes changes={changes} />
        ) : (
          <SchemaFields
            fields={LIMITS}
            texts={texts}
            errors={errors}
            onChange={(key, text) => setTexts((before) => ({ ...before, [key]: text }))}
          />
        )}
        <DialogFoot
          error={error}
          action={reviewing ? "Change" : "Review the change"}
          cancel={reviewing ? "Back" : "Cancel"}
          onCancel={reviewing ? () => setReviewing(false) : onClose}
          busy={changes.length === 0 || Object.keys(errors).length > 0}
        />
      </form>
    </Dialog>
  );
}

function Changes({ changes }: { changes: LimitChange[] }) {
  return (
    <table className="plain">
      <thead>
        <tr>
          <th>Limit</th>
          <th className="num">Now</th>
          <th className="num">Then</th>
        </tr>
      </thead>
      <tbody>
        {changes.map(({ key, before, after }) => (
          <tr key={key}>
            <td className="mono">{key}</td>
            <td className="num">{before}</td>
            <td className="num">
              <strong>{after}</strong>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

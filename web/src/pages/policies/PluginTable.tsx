// The policies that can be bound: bundled ones and the tenant's own.
import { Link } from "@tanstack/react-router";
import type { BindingShown, PluginView } from "../../api/types";
import { bytes } from "../../format/number";
import { Choice } from "../../ui/Choice";
import { Empty, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { WORLDS } from "./names";

interface Props {
  plugins: PluginView[];
  bindings: BindingShown[];
  world: string | undefined;
  onWorld: (world: string) => void;
}

export function PluginTable({ plugins, bindings, world, onWorld }: Props) {
  const rows = plugins
    .filter((plugin) => !world || plugin.world === world)
    .sort(
      (a, b) =>
        a.world.localeCompare(b.world) ||
        a.name.localeCompare(b.name) ||
        (b.uploaded_at_us ?? 0) - (a.uploaded_at_us ?? 0),
    );
  return (
    <Panel
      title="Library"
      note="bundled policies and your own, every version"
      flush
      actions={
        <Choice
          label="World"
          all="All worlds"
          value={world ?? ""}
          options={WORLDS.map((one) => [one, one])}
          onChange={onWorld}
        />
      }
    >
      {rows.length === 0 ? (
        <Empty icon="policies" title="No policy of this world">
          <p>Upload one, or choose another world.</p>
        </Empty>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
        <div className="plain-scroll" tabIndex={0}>
          <table className="plain">
            <thead>
              <tr>
                <th>Policy</th>
                <th>World</th>
                <th>Role</th>
                <th>What it does</th>
                <th className="num">Size</th>
                <th className="num">Signed</th>
                <th className="num">Stored</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((plugin) => (
                <tr key={plugin.digest}>
                  <td className="nowrap">
                    <Link to="/policies/$plugin" params={{ plugin: plugin.digest }}>
                      <Text value={plugin.name} max={60} />
                    </Link>{" "}
                    <span className="dim">
                      <Text value={plugin.version} max={40} />
                    </span>
                  </td>
                  <td>{plugin.world}</td>
                  <td>
                    <Roles digest={plugin.digest} bindings={bindings} />
                  </td>
                  <td className="soft">
                    <Text value={plugin.summary} max={160} />
                  </td>
                  <td className="num nowrap">{bytes(plugin.size_bytes)}</td>
                  <td className="num">
                    {plugin.signed_by ? "yes" : <span className="dim">no</span>}
                  </td>
                  <td className="num nowrap">
                    {plugin.uploaded_at_us ? (
                      <Time us={plugin.uploaded_at_us} clock="wall" />
                    ) : (
                      <span className="dim">bundled</span>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

interface RoleOf {
  role: string;
  tone: "good" | "warn" | "accent";
}

function rolesOf(digest: string, bindings: BindingShown[]): RoleOf[] {
  const key = `+${digest.slice(0, 12)}`;
  return bindings.flatMap((binding) => {
    const { canary, shadow } = binding;
    const job = binding.job === "*" ? "" : ` for ${binding.job}`;
    const roles: RoleOf[] = [];
    if (binding.policy.includes(key)) roles.push({ role: `active${job}`, tone: "good" });
    if (canary?.policy.includes(key)) roles.push({ role: `canary${job}`, tone: "warn" });
    if (shadow?.policy?.includes(key)) roles.push({ role: `shadow${job}`, tone: "accent" });
    return roles;
  });
}

/** Whether a policy has any role at present. */
export function isBound(digest: string, bindings: BindingShown[]): boolean {
  return rolesOf(digest, bindings).length > 0;
}

/** The roles that a policy has at present. */
export function Roles({ digest, bindings }: { digest: string; bindings: BindingShown[] }) {
  const roles = rolesOf(digest, bindings);
  if (roles.length === 0) return <span className="dim">–</span>;
  return roles.map(({ role, tone }) => (
    <Badge key={role} tone={tone}>
      <Text value={role} max={60} />
    </Badge>
  ));
}

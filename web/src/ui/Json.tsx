// A JSON value, laid out and cut where it is too long.
import { TextBlock } from "./Text";

export function Json({ value }: { value: unknown }) {
  return <TextBlock value={JSON.stringify(value, null, 2) ?? "null"} />;
}

// Tabs whose choice is in the URL.
import * as Radix from "@radix-ui/react-tabs";
import type { ReactNode } from "react";

export interface Tab {
  id: string;
  label: string;
  count?: number | undefined;
  content: ReactNode;
}

export function Tabs({
  label,
  tabs,
  value,
  onChange,
}: {
  label: string;
  tabs: Tab[];
  value: string;
  onChange: (id: string) => void;
}) {
  return (
    <Radix.Root className="tabs" value={value} onValueChange={onChange}>
      <Radix.List className="tab-list" aria-label={label}>
        {tabs.map((tab) => (
          <Radix.Trigger key={tab.id} className="tab" value={tab.id}>
            {tab.label}
            {tab.count === undefined ? null : <span className="tab-count">{tab.count}</span>}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {tabs.map((tab) => (
        <Radix.Content key={tab.id} className="tab-content" value={tab.id}>
          {value === tab.id ? tab.content : null}
        </Radix.Content>
      ))}
    </Radix.Root>
  );
}

// Names for the parts of the generated schema that the console uses.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type ProgramView = Schemas["ProgramView"];
export type StepView = Schemas["StepView"];
export type DecisionView = Schemas["DecisionView"];
export type EventView = Schemas["EventView"];
export type ActionView = Schemas["ActionView"];
export type Resources = Schemas["Resources"];
export type NodeRow = Schemas["NodeRow"];
export type SandboxView = Schemas["SandboxView"];
export type WorkerView = Schemas["WorkerView"];
export type MemoryReport = Schemas["MemoryReport"];
export type PluginView = Schemas["PluginView"];
export type PluginDetails = Schemas["PluginDetails"];
export type BindingShown = Schemas["BindingShown"];
export type Bind = Schemas["Bind"];
export type TenantLimits = Schemas["TenantLimits"];
export type TokenView = Schemas["TokenView"];
export type ChangeView = Schemas["ChangeView"];
export type RunView = Schemas["RunView"];
export type StartRun = Schemas["StartRun"];
export type WindowSpec = Schemas["WindowSpec"];
export type Health = Schemas["Health"];
export type KeptBody = Schemas["KeptBody"];
export type Scope = Schemas["Scope"];
export type Whoami = Schemas["Whoami"];

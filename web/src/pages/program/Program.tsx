// One program: what it did, when, where, and why.
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { ApiError, call, urlOf } from "../../api/client";
import { queryClient } from "../../api/queries";
import { useRights } from "../../app/Account";
import { curlOf } from "../../format/curl";
import { toTrace } from "../../model/trace";
import { Confirm } from "../../ui/Dialog";
import { Icon } from "../../ui/Icon";
import { Menu } from "../../ui/Menu";
import { copyText, notify, saveText } from "../../ui/notices";
import { Empty, Failure, Loading, PageHead } from "../../ui/Panel";
import { Tabs } from "../../ui/Tabs";
import { Text } from "../../ui/Text";
import { Decisions } from "./Decisions";
import { Facts } from "./Facts";
import { ProgramEvents } from "./ProgramEvents";
import { Steps } from "./Steps";
import { TimelinePanel } from "./TimelinePanel";
import { type ProgramData, useProgramData } from "./useProgramData";

export function Program() {
  const { program: id } = useParams({ from: "/programs/$program" });
  const { data, error, retry } = useProgramData(id);
  if (error instanceof ApiError && error.code === "program_unknown") return <Unknown id={id} />;
  if (error && !data) {
    return (
      <div className="page">
        <Failure error={error} retry={retry} />
      </div>
    );
  }
  if (!data) return <Loading rows={10} />;
  return <Known data={data} />;
}

function Known({ data }: { data: ProgramData }) {
  const id = data.view.program_id;
  const search = useSearch({ from: "/programs/$program" });
  const navigate = useNavigate({ from: "/programs/$program" });
  const selected = search.step === undefined ? null : Number(search.step);
  const tab = search.tab ?? "decisions";
  const select = (step: number | null, to = "steps") =>
    void navigate({
      search: (old) => ({ ...old, step: step === null ? undefined : String(step), tab: to }),
      replace: true,
      resetScroll: false,
    });
  const tabs = [
    {
      id: "decisions",
      label: "Decisions",
      count: data.decisions.length,
      content: <Decisions data={data} />,
    },
    {
      id: "steps",
      label: "Steps",
      count: data.steps.length,
      content: <Steps data={data} selected={selected} onSelect={(step) => select(step)} />,
    },
    {
      id: "events",
      label: "Events",
      count: data.events.length,
      content: <ProgramEvents events={data.events} />,
    },
  ];
  return (
    <div className="page">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/programs">Programs</Link>
        <span aria-hidden="true">/</span>
        {data.view.job ? (
          <Link to="/programs" search={{ job: data.view.job }}>
            <Text value={data.view.job} max={60} />
          </Link>
        ) : null}
      </nav>
      <PageHead title={<Text value={id} />}>
        <Actions data={data} />
      </PageHead>
      <Facts data={data} />
      <TimelinePanel data={data} selected={selected} onSelect={(step) => select(step)} />
      <Tabs
        label="About this program"
        tabs={tabs}
        value={tab}
        onChange={(next) =>
          void navigate({
            search: (old) => ({ ...old, tab: next }),
            replace: true,
            resetScroll: false,
          })
        }
      />
    </div>
  );
}

function Actions({ data }: { data: ProgramData }) {
  const id = data.view.program_id;
  const rights = useRights();
  const url = urlOf("/api/v1/programs/{program}", { program: id });
  const copyCurl = (what: string, path: string) => ({
    label: `Copy as curl: ${what}`,
    onSelect: () => void copyText(curlOf(path), "Command"),
  });
  const fileName = `${id.replace(/[^\w.-]+/g, "_").slice(0, 80)}.trace.json`;
  const release = async () => {
    await call("delete", "/api/v1/programs/{program}", { path: { program: id } });
    notify("The program was released.");
    await queryClient.invalidateQueries({ queryKey: ["program", id] });
  };
  return (
    <>
      <button
        type="button"
        className="button"
        onClick={() => saveText(fileName, toTrace(id, data.timeline))}
      >
        <Icon name="download" />
        Trace
      </button>
      <Menu
        label="More actions"
        className="button icon-only"
        items={[
          { label: "Copy link", onSelect: () => void copyText(window.location.href, "Link") },
          { label: "Copy name", onSelect: () => void copyText(id, "Name") },
          copyCurl("program", url),
          copyCurl("steps", `${url}/steps`),
          copyCurl("decisions", `${url}/decisions`),
          copyCurl("events", urlOf("/api/v1/events", {}, { program: id })),
        ]}
      >
        <Icon name="more" />
      </Menu>
      {!data.view.ended && rights.job ? (
        <Confirm
          title="Release this program?"
          text="It ends now: its waiting steps are refused and its memory is freed. This can't be undone."
          action="Release"
          danger
          onConfirm={release}
          trigger={(open) => (
            <button type="button" className="button danger" onClick={open}>
              Release
            </button>
          )}
        />
      ) : null}
    </>
  );
}

function Unknown({ id }: { id: string }) {
  return (
    <Empty icon="search" title="No program of this name">
      <p>
        <Text value={id} /> is not on record. It may have ended longer ago than{" "}
        <code>store.keep_ended_s</code>, or belong to another tenant.
      </p>
      <Link to="/programs" className="button">
        All programs
      </Link>
    </Empty>
  );
}

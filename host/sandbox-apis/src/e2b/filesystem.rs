//! envd's `filesystem.Filesystem`: files of a sandbox, except for their contents.

use super::connect::{self, Code, Fault};
use super::entries::{at, behind, told};
use super::routing::{Reached, reach};
use super::users::{User, Users, named_user};
use super::{CONNECT_JSON, JSON, input, watching};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_auth::Caller;
use treadle_endpoints::arguments::InPath;
use treadle_runs::sandboxes::SandboxApp;
use treadle_sandbox::{FileKind, UserIds};

/// Most levels of folders that are listed.
const DEPTH_MAX: u32 = 64;

/// A client's request about files.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FilesystemRequest {
    pub(super) path: Option<String>,
    depth: Option<u32>,
    source: Option<String>,
    destination: Option<String>,
    pub(super) recursive: Option<bool>,
    #[serde(alias = "includeEntry")]
    pub(super) include_entry: Option<bool>,
    #[serde(alias = "watcherId")]
    pub(super) watcher_id: Option<String>,
}

/// Files of a sandbox, from the view of a user.
pub(super) struct Place {
    pub(super) reached: Reached,
    users: Users,
    user: User,
}

impl Place {
    pub(super) async fn of(reached: Reached, user: &str) -> Result<Self, Fault> {
        let users = Users::of(&reached.sandbox).await;
        let user = users.find(user).ok_or_else(|| {
            let message = format!("no user {user} in the sandbox");
            Fault::new(Code::Unauthenticated, message)
        })?;
        Ok(Self {
            reached,
            users,
            user,
        })
    }

    /// The owner of new files.
    pub(super) fn owner(&self) -> UserIds {
        self.user.ids
    }

    pub(super) fn path(&self, written: Option<&str>) -> Result<String, Fault> {
        self.user
            .path(written.unwrap_or_default())
            .map_err(Fault::invalid)
    }

    async fn entry(&self, path: &str) -> Result<Value, Fault> {
        let found = at(&self.reached.sandbox, path).await?;
        let entry = found.ok_or_else(|| missing(path))?;
        Ok(told(&self.reached.sandbox, &self.users, entry).await)
    }

    pub(super) async fn kind(&self, path: &str) -> Result<Option<FileKind>, Fault> {
        let sandbox = &self.reached.sandbox;
        Ok(match at(sandbox, path).await? {
            Some(entry) => behind(sandbox, &entry).await.map(|entry| entry.kind),
            None => None,
        })
    }

    /// Refuses a path that is not a folder.
    pub(super) async fn is_folder(&self, path: &str) -> Result<(), Fault> {
        match self.kind(path).await? {
            Some(FileKind::Folder) => Ok(()),
            Some(_) => Err(Fault::invalid(format!("{path} is not a folder"))),
            None => Err(missing(path)),
        }
    }
}

pub(super) fn missing(path: &str) -> Fault {
    Fault::new(Code::NotFound, format!("{path} does not exist"))
}

/// The user of a call.
pub(super) fn user_of(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION);
    named_user(value.and_then(|value| value.to_str().ok()))
}

pub(super) async fn serve(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(method): InPath<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let reached = match reach(&app, &caller, &headers, None).await {
        Ok(reached) => reached,
        Err(refusal) => return refusal,
    };
    let is_stream = method == "WatchDir";
    let kind = if is_stream { CONNECT_JSON } else { JSON };
    if !connect::is_of_kind(&headers, kind) {
        return connect::other_kind(kind);
    }
    let bytes = match input::whole(&app, &reached.principal, &headers, body).await {
        Ok(bytes) => bytes,
        Err(error) => return connect::refuse(Fault::from(&error), is_stream),
    };
    if is_stream {
        return connect::stream(|sender| watching::stream(reached, headers, bytes, sender));
    }
    let answered = async {
        let request: FilesystemRequest = connect::message(&bytes)?;
        let place = Place::of(reached, &user_of(&headers)).await?;
        call(&place, &method, request).await
    };
    connect::unary(answered.await)
}

async fn call(place: &Place, method: &str, request: FilesystemRequest) -> Result<Value, Fault> {
    let sandbox = &place.reached.sandbox;
    match method {
        "Stat" => {
            let path = place.path(request.path.as_deref())?;
            Ok(json!({"entry": place.entry(&path).await?}))
        }
        "ListDir" => list(place, request).await,
        "MakeDir" => {
            let path = place.path(request.path.as_deref())?;
            match place.kind(&path).await? {
                Some(FileKind::Folder) => {
                    return Err(Fault::new(
                        Code::AlreadyExists,
                        format!("{path} already exists"),
                    ));
                }
                Some(_) => return Err(Fault::invalid(format!("{path} is a file"))),
                None => sandbox.make_folder_as(place.owner(), &path).await?,
            };
            Ok(json!({"entry": place.entry(&path).await?}))
        }
        "Move" => {
            let from = place.path(request.source.as_deref())?;
            let to = place.path(request.destination.as_deref())?;
            at(sandbox, &from).await?.ok_or_else(|| missing(&from))?;
            if let Some((above, _)) = to.rsplit_once('/')
                && !above.is_empty()
            {
                sandbox.make_folder_as(place.owner(), above).await?;
            }
            sandbox.rename(&from, &to).await?;
            Ok(json!({"entry": place.entry(&to).await?}))
        }
        "Remove" => {
            let path = place.path(request.path.as_deref())?;
            if at(sandbox, &path).await?.is_some() {
                sandbox.remove_file(&path).await?;
            }
            Ok(json!({}))
        }
        "CreateWatcher" => watching::create(place, request).await,
        "GetWatcherEvents" => watching::events(place, request).await,
        "RemoveWatcher" => watching::remove(place, &request),
        _ => {
            let message = format!("treadle does not serve filesystem.Filesystem/{method} of envd");
            Err(Fault::new(Code::Unimplemented, message))
        }
    }
}

async fn list(place: &Place, request: FilesystemRequest) -> Result<Value, Fault> {
    let path = place.path(request.path.as_deref())?;
    place.is_folder(&path).await?;
    let sandbox = &place.reached.sandbox;
    let depth = request.depth.unwrap_or(1).clamp(1, DEPTH_MAX);
    let mut entries = Vec::new();
    for entry in sandbox.list(&path, depth).await? {
        entries.push(told(sandbox, &place.users, entry).await);
    }
    Ok(json!({"entries": entries}))
}

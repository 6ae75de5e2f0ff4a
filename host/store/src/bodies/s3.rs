//! Bodies as objects of an S3 bucket, or of anything that speaks its protocol.

use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::TokioExecutor;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStoreExt, RetryConfig};

use super::{S3Location, failed};
use crate::StoreError;

/// How long a request may take until its answer begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Times that a request is tried again, and how long that may go on.
const RETRIES_MAX: usize = 4;
const RETRY_TIMEOUT: Duration = Duration::from_mins(1);

/// A bucket, and where in it.
#[derive(Debug)]
pub(super) struct Bucket {
    store: AmazonS3,
    url: String,
    prefix: String,
}

impl Bucket {
    /// Reads a location; credentials and region come from the environment (`AWS_*`).
    pub(super) fn open(at: &S3Location) -> Result<Self, StoreError> {
        let wrong = |reason: String| StoreError::Setting {
            setting: "bodies",
            reason,
        };
        let path = at.url.strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(wrong(format!("{:?} is not s3://bucket/prefix", at.url)));
        }
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(RetryConfig {
                max_retries: RETRIES_MAX,
                retry_timeout: RETRY_TIMEOUT,
                ..RetryConfig::default()
            })
            // Not all that speak the protocol delete many at once.
            .with_disable_bulk_delete(true)
            .with_http_connector(Connector);
        if let Some(endpoint) = &at.endpoint {
            builder = builder
                .with_allow_http(endpoint.starts_with("http://"))
                .with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            store,
            url: at.url.clone(),
            prefix: prefix.trim_matches('/').to_owned(),
        })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    fn failed(&self, error: object_store::Error) -> StoreError {
        failed(&self.url, std::io::Error::other(error))
    }

    /// Writes an object.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let put = self.store.put(&self.path(name), bytes.into()).await;
        put.map(|_| ()).map_err(|error| self.failed(error))
    }

    /// Reads an object; `None` if it is not there.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let got = match self.store.get(&self.path(name)).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Removes an object, if it is there.
    pub(super) async fn remove(&self, name: &str) -> Result<(), StoreError> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }
}

/// Makes clients over hyper, which the rest of treadle uses too.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let generic = |source: std::io::Error| object_store::Error::Generic {
            store: "S3",
            source: source.into(),
        };
        let tls = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(generic)?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(HttpClient::new(Service(
            Client::builder(TokioExecutor::new()).build(tls),
        )))
    }
}

#[derive(Debug)]
struct Service(Client<HttpsConnector<Tcp>, HttpRequestBody>);

type Called<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

// What `async_trait` would write, without depending on it.
impl HttpService for Service {
    fn call<'life, 'a>(&'life self, request: HttpRequest) -> Called<'a>
    where
        'life: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let late = |_| HttpError::new(HttpErrorKind::Timeout, late());
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.0.request(request))
                .await
                .map_err(late)?;
            let answer = answer.map_err(|error| {
                let kind = if error.is_connect() {
                    HttpErrorKind::Connect
                } else {
                    HttpErrorKind::Interrupted
                };
                HttpError::new(kind, error)
            })?;
            let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            let (parts, body) = answer.into_parts();
            let body = HttpResponseBody::new(body.map_err(broken));
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

fn late() -> std::io::Error {
    let seconds = REQUEST_TIMEOUT.as_secs();
    let said = format!("no answer within {seconds} s");
    std::io::Error::new(std::io::ErrorKind::TimedOut, said)
}

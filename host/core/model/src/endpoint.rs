//! URLs of workers. An endpoint with data parallelism has several ranks, each with a cache of its
//! own: each is a worker, whose URL is that of the endpoint and `#` with the rank's number.

/// The URL of the endpoint that a worker is at, and the worker's rank there, if it has several.
pub fn endpoint_of(url: &str) -> (&str, Option<u32>) {
    match url.split_once('#') {
        Some((endpoint, rank)) => (endpoint.trim_end_matches('/'), rank.parse().ok()),
        None => (url.trim_end_matches('/'), None),
    }
}

#[cfg(test)]
mod tests {
    use super::endpoint_of;

    #[test]
    fn ranks_are_fragments() {
        let url = "http://gpu-1:8000";
        assert_eq!(endpoint_of("http://gpu-1:8000/"), (url, None));
        assert_eq!(endpoint_of("http://gpu-1:8000#12"), (url, Some(12)));
        assert_eq!(endpoint_of("http://gpu-1:8000/#0"), (url, Some(0)));
        assert_eq!(endpoint_of("http://gpu-1:8000#x"), (url, None));
    }
}

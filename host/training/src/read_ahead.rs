//! Work that goes on while its earlier results are used.

use futures_util::stream::{Stream, StreamExt};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{JoinError, JoinHandle};

/// A task that ends when this is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The results of some work, in its order. Each piece of it is a task, so that it goes on while
/// nobody asks for a result. At most `tasks_max` run, or have ended with a result that was not taken;
/// the others have not begun. All end when this is dropped.
pub(crate) fn read_ahead<W>(
    work: impl Stream<Item = W> + Send,
    tasks_max: usize,
) -> impl Stream<Item = Result<W::Output, JoinError>> + Send
where
    W: Future<Output: Send> + Send + 'static,
{
    work.map(|work| Task(tokio::spawn(work)))
        .buffered(tasks_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future;
    use futures_util::stream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::{mpsc, oneshot};

    #[tokio::test]
    async fn results_come_in_order_and_few_are_ahead_of_those_that_were_taken() {
        let (said, mut heard) = mpsc::unbounded_channel();
        let (gates, waits): (Vec<_>, Vec<_>) = (0..5).map(|_| oneshot::channel::<()>()).unzip();
        let mut gates: Vec<_> = gates.into_iter().map(Some).collect();
        let work = stream::iter(waits.into_iter().enumerate()).map(move |(number, wait)| {
            let said = said.clone();
            async move {
                said.send((number, "begun")).expect("the test listens");
                wait.await.expect("its gate is opened");
                said.send((number, "ended")).expect("the test listens");
                number
            }
        });
        let mut open = |number: usize| {
            let gate: oneshot::Sender<()> = gates[number].take().expect("it is closed");
            gate.send(()).expect("its work has not ended");
        };
        let mut results = Box::pin(read_ahead(work, 3));
        assert!(future::poll_immediate(results.next()).await.is_none());
        let mut begun = Vec::new();
        for _ in 0..3 {
            begun.push(heard.recv().await);
        }
        begun.sort_unstable();
        assert_eq!(begun, [0, 1, 2].map(|number| Some((number, "begun"))));
        // Later ones end first, although nobody asks, and none takes their places.
        for number in [2, 1] {
            open(number);
            assert_eq!(heard.recv().await, Some((number, "ended")));
        }
        assert!(future::poll_immediate(results.next()).await.is_none());
        tokio::task::yield_now().await;
        assert!(heard.try_recv().is_err(), "three are ahead");
        for number in [4, 3, 0] {
            open(number);
        }
        let all: Vec<usize> = results
            .map(|ended| ended.expect("it ended well"))
            .collect()
            .await;
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_ends() {
        let begun = Arc::new(AtomicUsize::new(0));
        // Each piece of work holds a sender until it ends.
        let (held, mut all_ended) = mpsc::channel::<()>(1);
        let work = stream::iter(0..9).map({
            let begun = begun.clone();
            move |_| {
                let (begun, held) = (begun.clone(), held.clone());
                async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    future::pending::<()>().await;
                    drop(held);
                }
            }
        });
        let mut results = Box::pin(read_ahead(work, 2));
        assert!(future::poll_immediate(results.next()).await.is_none());
        while begun.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        drop(results);
        assert_eq!(all_ended.recv().await, None);
        assert_eq!(begun.load(Ordering::Relaxed), 2, "others never began");
    }
}

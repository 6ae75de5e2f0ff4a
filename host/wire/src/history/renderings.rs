//! The tokens that follow an answer.

use super::as_sent::AsSent;

/// Token ids of the stand-ins, and of the request as its client sent it.
#[derive(Clone, Debug, Default)]
pub struct Renderings {
    /// What stands before the answer.
    pub opening: Vec<i32>,
    /// The answer and the new messages, the first with another text.
    pub probe: Vec<i32>,
    /// The answer and the new messages.
    pub whole: Vec<i32>,
    /// All messages of the request.
    pub sent: Vec<i32>,
}

impl Renderings {
    /// The prompt that continues an answer: `context`, its prompt and its tokens, and what follows.
    ///
    /// # Errors
    /// Why it can't be told.
    pub fn continuing(&self, context: &[i32]) -> Result<Vec<i32>, AsSent> {
        let stop = *context.last().ok_or(AsSent::StopToken)?;
        let Self { opening, whole, .. } = self;
        if !whole.starts_with(opening) || !self.probe.starts_with(opening) {
            return Err(AsSent::Prefix);
        }
        let pairs = whole.iter().zip(&self.probe);
        let equal = pairs.take_while(|(whole, probe)| whole == probe).count();
        let mut stops = (opening.len()..equal).filter(|at| whole[*at] == stop);
        let (Some(end), None) = (stops.next(), stops.next()) else {
            return Err(AsSent::StopToken);
        };
        let tail = &whole[end + 1..];
        if tail.is_empty() || !self.sent.ends_with(&whole[end..]) {
            return Err(AsSent::Context);
        }
        Ok([context, tail].concat())
    }
}

//! Response bodies: a fixed one, a token stream, or silence.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use crate::api::app::InFlight;
use crate::api::openai::{DONE, Renderer, engine_dead_event, word};
use crate::api::slot::End;
use crate::ipc::Finish;

/// A body of the mock.
pub enum MockBody {
    /// Known bytes.
    Full(Option<Bytes>),
    /// Server-sent events.
    Stream(Box<StreamBody>),
    /// Headers, then nothing until the client leaves.
    Silence(Box<InFlight>),
}

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Role,
    Tokens,
    Usage,
    Done,
    Over,
}

/// Renders one stream as its tokens come.
pub struct StreamBody {
    request: InFlight,
    renderer: Renderer,
    include_usage: bool,
    stage: Stage,
    end: End,
    /// Reset the connection once this many tokens are out.
    reset_after: Option<u32>,
    reset: Rc<Notify>,
}

impl StreamBody {
    /// A stream of `request`. `reset` ends the connection with a RST when notified.
    pub fn new(
        request: InFlight,
        renderer: Renderer,
        include_usage: bool,
        reset_after: Option<u32>,
        reset: Rc<Notify>,
    ) -> Self {
        StreamBody {
            request,
            renderer,
            include_usage,
            stage: Stage::Role,
            end: End::Done,
            reset_after,
            reset,
        }
    }

    fn next(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let (made, finish, dead) = {
            let p = self.request.slot().progress.borrow();
            (p.made, p.finish, p.dead)
        };
        loop {
            match self.stage {
                Stage::Role | Stage::Tokens
                    if self
                        .reset_after
                        .is_some_and(|n| self.request.sent >= n && (n == 0 || made >= n)) =>
                {
                    // The tokens before this point are flushed on return; the
                    // connection task resets after that.
                    self.stage = Stage::Over;
                    self.end = End::Reset;
                    self.request.end(End::Reset, 200);
                    self.reset.notify_one();
                    return Poll::Pending;
                }
                Stage::Role => {
                    // vLLM sends the role together with the first output.
                    if made == 0 && finish.is_none() && !dead {
                        self.request.slot().wait(context.waker());
                        return Poll::Pending;
                    }
                    self.stage = Stage::Tokens;
                    if !(dead && made == 0)
                        && let Some(role) = self.renderer.role()
                    {
                        return Poll::Ready(Some(role));
                    }
                }
                Stage::Tokens => {
                    let sent = self.request.sent;
                    if sent < made {
                        let last = if sent + 1 == made { finish } else { None };
                        let chunk = self.renderer.token(word(sent), sent + 1, last);
                        self.request.note_sent(sent + 1);
                        if let Some(f) = last {
                            self.finish(f);
                        }
                        return Poll::Ready(Some(chunk));
                    }
                    if let Some(f) = finish {
                        let chunk = self.renderer.token("", sent, Some(f));
                        self.finish(f);
                        return Poll::Ready(Some(chunk));
                    }
                    if dead {
                        self.end = End::EngineDead;
                        self.stage = Stage::Done;
                        return Poll::Ready(Some(engine_dead_event()));
                    }
                    self.request.slot().wait(context.waker());
                    return Poll::Pending;
                }
                Stage::Usage => {
                    self.stage = Stage::Done;
                    if self.include_usage {
                        return Poll::Ready(Some(self.renderer.final_usage(self.request.sent)));
                    }
                }
                Stage::Done => {
                    self.stage = Stage::Over;
                    self.request.end(self.end, 200);
                    return Poll::Ready(Some(Bytes::from_static(DONE)));
                }
                // After a reset nothing more comes; the connection goes away.
                Stage::Over if self.end == End::Reset => return Poll::Pending,
                Stage::Over => return Poll::Ready(None),
            }
        }
    }

    fn finish(&mut self, finish: Finish) {
        self.stage = Stage::Usage;
        if finish == Finish::Abort {
            self.end = End::Aborted;
        }
    }
}

impl Body for MockBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            MockBody::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            MockBody::Stream(s) => s.next(context).map(|b| b.map(|b| Ok(Frame::data(b)))),
            MockBody::Silence(_) => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            MockBody::Full(b) => b.as_ref().is_none_or(Bytes::is_empty),
            MockBody::Stream(_) | MockBody::Silence(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            MockBody::Full(b) => SizeHint::with_exact(b.as_ref().map_or(0, |b| b.len() as u64)),
            MockBody::Stream(_) | MockBody::Silence(_) => SizeHint::default(),
        }
    }
}

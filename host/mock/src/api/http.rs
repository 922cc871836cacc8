//! Routes of the main port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::Notify;

use crate::api::admin;
use crate::api::app::{App, Engine, InFlight, unix_now_s};
use crate::api::body::{MockBody, StreamBody};
use crate::api::fault::{Fault, Mode};
use crate::api::openai::{self, Api, Parsed, Renderer};
use crate::api::slot::End;
use crate::ipc::Finish;
use crate::logline::Kind;
use crate::mono::now_ns;
use crate::release::DeadUnary;

/// Largest request body.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Longest request id kept.
const MAX_ID_BYTES: usize = 128;

/// What a handler knows of its connection.
#[derive(Clone)]
pub struct Connection {
    /// Client.
    pub peer: SocketAddr,
    /// Notified to end the connection with a RST.
    pub reset: Rc<Notify>,
}

/// A JSON response.
pub fn json_response(status: u16, body: Bytes) -> Response<MockBody> {
    let mut r = Response::new(MockBody::Full(Some(body)));
    *r.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    r.headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    r
}

/// An empty response.
fn empty(status: StatusCode) -> Response<MockBody> {
    let mut r = Response::new(MockBody::Full(None));
    *r.status_mut() = status;
    r
}

/// A random-looking id of 16 hexadecimal digits, unique in the machine's life.
fn fresh_id(n: u64, arrival_ns: u64) -> String {
    let mut z = arrival_ns ^ n.rotate_left(48);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    format!("{:016x}", z ^ (z >> 31))
}

/// Serves one request of the main port.
pub async fn handle(
    app: Rc<App>,
    connection: Connection,
    request: Request<Incoming>,
) -> Result<Response<MockBody>, Infallible> {
    let arrival_ns = now_ns();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let id = request
        .headers()
        .get("x-request-id")
        .filter(|v| v.len() <= MAX_ID_BYTES)
        .and_then(|v| v.to_str().ok().map(|s| (s.to_owned(), v.clone())));
    let mut response = match (&method, path.as_str()) {
        (&Method::POST, "/v1/chat/completions") => {
            infer(
                &app,
                &connection,
                Api::Chat,
                request,
                arrival_ns,
                id.as_ref().map(|i| i.0.clone()),
            )
            .await
        }
        (&Method::POST, "/v1/completions") => {
            infer(
                &app,
                &connection,
                Api::Completions,
                request,
                arrival_ns,
                id.as_ref().map(|i| i.0.clone()),
            )
            .await
        }
        (&Method::GET, "/health") => match app.engine.get() {
            Engine::Alive | Engine::DeadUnnoticed => empty(StatusCode::OK),
            Engine::Dead => empty(StatusCode::SERVICE_UNAVAILABLE),
        },
        (&Method::GET, "/version") => json_response(
            200,
            json!({ "version": app.release.version }).to_string().into(),
        ),
        (&Method::GET, "/v1/models") => models(&app),
        (&Method::GET, "/metrics") => metrics(&app),
        (_, p) if app.admin_on_main && p.starts_with("/admin/") => {
            admin::handle(&app, request).await
        }
        (
            _,
            "/v1/chat/completions"
            | "/v1/completions"
            | "/health"
            | "/version"
            | "/v1/models"
            | "/metrics",
        ) => json_response(
            405,
            Bytes::from_static(b"{\"detail\":\"Method Not Allowed\"}"),
        ),
        _ => json_response(404, Bytes::from_static(b"{\"detail\":\"Not Found\"}")),
    };
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("uvicorn"));
    if let Some(name) = &app.replica {
        headers.insert("x-replica", name.clone());
    }
    if let Some((_, value)) = id {
        headers.insert("x-request-id", value);
    }
    if let Some(writer) = &app.access_log {
        let status = response.status();
        writer.print(
            Kind::Uvicorn("INFO"),
            &format!(
                "{} - \"{method} {path} HTTP/1.1\" {} {}",
                connection.peer,
                status.as_u16(),
                status.canonical_reason().unwrap_or("")
            ),
        );
    }
    Ok(response)
}

fn models(app: &App) -> Response<MockBody> {
    let body = json!({
        "object": "list",
        "data": [{
            "id": app.config.model, "object": "model", "created": unix_now_s() as u64, "owned_by": "vllm",
            "root": app.config.model, "parent": null, "max_model_len": app.config.max_model_len,
        }],
    });
    json_response(200, body.to_string().into())
}

fn metrics(app: &App) -> Response<MockBody> {
    let page = app
        .metrics
        .borrow()
        .render(app.release.metrics, &app.config.model, app.kv_usage());
    let mut r = json_response(200, page.into());
    r.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    r
}

async fn infer(
    app: &Rc<App>,
    connection: &Connection,
    api: Api,
    request: Request<Incoming>,
    arrival_ns: u64,
    request_id: Option<String>,
) -> Response<MockBody> {
    let mut in_flight = app.arrive(arrival_ns, request_id);
    let body = match Limited::new(request.into_body(), MAX_BODY_BYTES)
        .collect()
        .await
    {
        Ok(b) => b.to_bytes(),
        Err(_) => {
            in_flight.end(End::Rejected, 413);
            let say = format!("the request body is cut short or over {MAX_BODY_BYTES} bytes");
            return json_response(413, openai::error_body(&say, "BadRequestError", None, 413));
        }
    };
    let parsed = match openai::parse(api, &body, &app.config) {
        Ok(p) => p,
        Err(refusal) => {
            in_flight.end(End::Rejected, refusal.status);
            return json_response(refusal.status, refusal.body());
        }
    };
    let fault = app.injector.borrow_mut().draw();
    match fault {
        Some(Fault {
            mode: Mode::Error,
            status,
            delay_ms,
            ..
        }) => {
            if delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
            in_flight.end(End::FaultError, status);
            json_response(
                status,
                openai::error_body("injected error", "InternalServerError", None, status),
            )
        }
        Some(Fault {
            mode: Mode::SilentHang,
            ..
        }) => event_stream(MockBody::Silence(Box::new(in_flight))),
        other => {
            let reset_after = other
                .filter(|f| f.mode == Mode::StreamAbort)
                .map(|f| f.after_tokens);
            answer(app, connection, parsed, in_flight, reset_after).await
        }
    }
}

fn event_stream(body: MockBody) -> Response<MockBody> {
    let mut r = Response::new(body);
    r.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    r
}

async fn answer(
    app: &Rc<App>,
    connection: &Connection,
    parsed: Parsed,
    mut in_flight: InFlight,
    reset_after: Option<u32>,
) -> Response<MockBody> {
    let dead_at_arrival = app.engine.get() == Engine::Dead;
    if !in_flight.submit(&parsed) {
        in_flight.end(End::Rejected, 503);
        return json_response(
            503,
            openai::error_body(
                "the engine's queue is full",
                "InternalServerError",
                None,
                503,
            ),
        );
    }
    let id = in_flight
        .slot()
        .request_id
        .clone()
        .unwrap_or_else(|| fresh_id(in_flight.slot().id, in_flight.slot().arrival_ns));
    let renderer = Renderer::new(
        &parsed,
        app.release.chunk,
        &app.config,
        &id,
        unix_now_s() as u64,
    );
    if parsed.stream && !dead_at_arrival {
        let stream = StreamBody::new(
            in_flight,
            renderer,
            parsed.include_usage,
            reset_after,
            Rc::clone(&connection.reset),
        );
        return event_stream(MockBody::Stream(Box::new(stream)));
    }
    if reset_after.is_some() {
        in_flight.end(End::Reset, 0);
        connection.reset.notify_one();
        return event_stream(MockBody::Silence(Box::new(in_flight)));
    }
    let (made, outcome) = whole(&in_flight).await;
    let Some(finish) = outcome else {
        let status = match app.release.engine_death.unary {
            DeadUnary::Status500 => 500,
            DeadUnary::Status200ErrorBody => 200,
            // Not reached: in such releases nobody marks a request as dead.
            DeadUnary::Hang => return event_stream(MockBody::Silence(Box::new(in_flight))),
        };
        in_flight.end(End::EngineDead, status);
        return json_response(status, openai::engine_dead_body());
    };
    if made > 0 {
        in_flight.note_sent(made);
    }
    in_flight.end(
        if finish == Finish::Abort {
            End::Aborted
        } else {
            End::Done
        },
        200,
    );
    json_response(200, renderer.whole(made, finish))
}

/// Waits for the end of a sequence: its tokens and the reason, `None` = engine dead.
async fn whole(in_flight: &InFlight) -> (u32, Option<Finish>) {
    std::future::poll_fn(|context| {
        let slot = in_flight.slot();
        {
            let p = slot.progress.borrow();
            if p.finish.is_some() || p.dead {
                return Poll::Ready((p.made, p.finish));
            }
        }
        slot.wait(context.waker());
        Poll::Pending
    })
    .await
}

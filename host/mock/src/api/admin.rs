//! The admin interface: set and show faults, show request accounting.

use std::rc::Rc;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::json;

use crate::api::app::App;
use crate::api::body::MockBody;
use crate::api::fault::{Fault, Mode};
use crate::api::http::json_response;
use crate::ipc::ToEngine;

/// Largest admin body.
const MAX_ADMIN_BYTES: usize = 64 * 1024;

/// Serves one admin request.
pub async fn handle(app: &Rc<App>, request: Request<Incoming>) -> Response<MockBody> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    match (&method, path.as_str()) {
        (&Method::GET, "/admin/fault") => show(app),
        (&Method::GET, "/admin/requests") => {
            json_response(200, app.ledger.borrow().report().to_string().into())
        }
        (&Method::POST, "/admin/fault") => {
            let body = match Limited::new(request.into_body(), MAX_ADMIN_BYTES)
                .collect()
                .await
            {
                Ok(b) => b.to_bytes(),
                Err(_) => return refuse(413, "the body is cut short or too long"),
            };
            match Fault::parse(&body) {
                Ok(fault) => set(app, fault),
                Err(e) => refuse(400, &e),
            }
        }
        _ => refuse(404, "known: GET and POST /admin/fault, GET /admin/requests"),
    }
}

fn refuse(status: u16, message: &str) -> Response<MockBody> {
    json_response(status, json!({ "error": message }).to_string().into())
}

fn show(app: &App) -> Response<MockBody> {
    match serde_json::to_vec(app.injector.borrow().fault()) {
        Ok(body) => json_response(200, body.into()),
        Err(e) => refuse(500, &e.to_string()),
    }
}

fn set(app: &App, fault: Fault) -> Response<MockBody> {
    if fault.mode == Mode::SlowReload {
        let Some(state) = &app.state else {
            return refuse(
                409,
                "slow_reload is kept for the next start: run the mock with --state-file FILE",
            );
        };
        if let Err(e) = state.set_next_factor(Some(fault.factor)) {
            return refuse(500, &format!("cannot write the state file: {e}"));
        }
    }
    let before = app.injector.borrow().fault().mode;
    if (before == Mode::Stall) != (fault.mode == Mode::Stall) {
        app.link.send(ToEngine::Stall {
            on: fault.mode == Mode::Stall,
        });
    }
    app.truth.write("fault", json!({ "fault": fault }));
    app.injector.borrow_mut().set(fault);
    show(app)
}

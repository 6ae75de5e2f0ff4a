//! A proxy between a store and PostgreSQL that recognises statements: one of them, or all from one
//! on, gets an error, or the connection breaks there.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A fault of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The server itself raises this error, so its state includes it.
    Raises(&'static str),
    /// The server ends the connection with this error.
    Ends(&'static str),
    /// The server ends the connection with this error, and refuses the next connection with it.
    Refuses(&'static str),
    /// The connection breaks before the server receives it.
    BreaksBefore,
    /// The server executes it, but the answer is lost.
    BreaksAfter,
    /// The answer is invalid.
    Garbage,
}

/// SQLSTATEs of errors that leave the connection usable.
const RAISED: [&str; 21] = [
    "40001", "40P01", "53100", "53200", "53300", "25006", "23505", "42P01", "42501", "42703",
    "57014", "54001", "58030", "XX000", "XX001", "XX002", "55P03", "22021", "23503", "0A000",
    "55006",
];
/// SQLSTATEs with which the server ends a connection.
const ENDING: [&str; 6] = ["57P01", "57P02", "57P03", "25P03", "57P05", "53300"];

/// All faults.
pub(crate) fn all() -> Vec<Fault> {
    let raised = RAISED.map(Fault::Raises);
    let ends = ENDING.map(Fault::Ends);
    let refuses = ["57P03", "53300", "28P01", "3D000"].map(Fault::Refuses);
    let broken = [Fault::BreaksBefore, Fault::BreaksAfter, Fault::Garbage];
    raised
        .into_iter()
        .chain(ends)
        .chain(refuses)
        .chain(broken)
        .collect()
}

#[derive(Debug, Default)]
struct Plan {
    fault: Option<Fault>,
    left: u64,
    stays: bool,
    fired: u64,
    refuse: Option<&'static str>,
    met: BTreeSet<(String, Fault)>,
}

/// The proxy; it ends with the process.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    plan: Arc<Mutex<Plan>>,
}

impl Proxy {
    pub(crate) fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            plan: Arc::default(),
        };
        let (server, plan) = (server.to_owned(), Arc::clone(&proxy.plan));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, plan) = (server.clone(), Arc::clone(&plan));
                std::thread::spawn(move || serve(&client, &server, &plan));
            }
        });
        proxy
    }

    /// Injects a fault into the statement after `after` others, and into all later ones if it
    /// `stays`.
    pub(crate) fn arm(&self, fault: Fault, after: u64, stays: bool) {
        let mut plan = self.plan.lock().unwrap();
        plan.fault = Some(fault);
        (plan.left, plan.stays, plan.fired) = (after, stays, 0);
    }

    /// Stops injecting faults; returns the number of statements with the fault.
    pub(crate) fn disarm(&self) -> u64 {
        let mut plan = self.plan.lock().unwrap();
        (plan.fault, plan.refuse) = (None, None);
        plan.fired
    }

    /// Number of statements with a fault, and of pairs of both.
    pub(crate) fn met(&self) -> (usize, usize) {
        let plan = self.plan.lock().unwrap();
        let statements: BTreeSet<&str> = plan.met.iter().map(|(sql, _)| sql.as_str()).collect();
        (statements.len(), plan.met.len())
    }
}

impl Plan {
    /// The fault of this statement, if any.
    fn next(&mut self, sql: &str) -> Option<Fault> {
        let fault = self.fault?;
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        if self.fired > 0 && !self.stays {
            return None;
        }
        self.fired += 1;
        self.met.insert((sql.to_owned(), fault));
        if let Fault::Refuses(state) = fault {
            self.refuse = Some(state);
        }
        Some(fault)
    }
}

/// Splits a client's messages at the points where the server answers.
#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    sql: String,
}

fn serve(client: &TcpStream, server: &str, plan: &Mutex<Plan>) {
    let _ = forward(client, server, plan);
    let _ = client.shutdown(Shutdown::Both);
}

fn forward(client: &TcpStream, server: &str, plan: &Mutex<Plan>) -> std::io::Result<()> {
    let mut from = client;
    let startup = read_startup(&mut from)?;
    let refused = plan.lock().unwrap().refuse.take();
    if let Some(state) = refused {
        return from.write_all(&fatal(state));
    }
    let server = TcpStream::connect(server)?;
    (&server).write_all(&startup)?;
    let (answers, to_client) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut &answers, &mut &to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let passed = pass_on(client, &server, plan);
    let _ = server.shutdown(Shutdown::Write);
    passed
}

fn pass_on(
    mut client: &TcpStream,
    mut server: &TcpStream,
    plan: &Mutex<Plan>,
) -> std::io::Result<()> {
    let mut statements = HashMap::new();
    loop {
        let group = read_group(&mut client, &mut statements)?;
        let fault = match group.sql.as_str() {
            "" => None,
            sql => plan.lock().unwrap().next(sql),
        };
        match fault {
            None => server.write_all(&group.bytes)?,
            Some(Fault::Raises(state)) => server.write_all(&raise(state))?,
            Some(Fault::Ends(state) | Fault::Refuses(state)) => {
                return client.write_all(&fatal(state));
            }
            Some(Fault::BreaksBefore) => return client.shutdown(Shutdown::Both),
            Some(Fault::BreaksAfter) => {
                // The server reads no more, so it ends after this.
                client.shutdown(Shutdown::Both)?;
                return server.write_all(&group.bytes);
            }
            Some(Fault::Garbage) => return client.write_all(&[0xff; 64]),
        }
    }
}

/// Reads the first message, which has no type; a request for TLS is declined.
fn read_startup(client: &mut &TcpStream) -> std::io::Result<Vec<u8>> {
    const TLS: u32 = 80_877_103;
    loop {
        let mut head = [0; 8];
        client.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut message = head.to_vec();
        message.resize((word(0) as usize).clamp(8, 1 << 16), 0);
        client.read_exact(&mut message[8..])?;
        if word(4) != TLS {
            return Ok(message);
        }
        client.write_all(b"N")?;
    }
}

/// Reads messages up to a `Sync`, a simple query, or another message that gets its own answer.
fn read_group(
    client: &mut &TcpStream,
    statements: &mut HashMap<Vec<u8>, String>,
) -> std::io::Result<Group> {
    let mut group = Group::default();
    loop {
        let mut head = [0; 5];
        client.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length.clamp(4, 1 << 28) - 4];
        client.read_exact(&mut body)?;
        let mut words = body.split(|byte| *byte == 0);
        let mut word = || words.next().unwrap_or_default().to_vec();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match head[0] {
            b'P' => {
                let name = word();
                group.sql = text(word());
                statements.insert(name, group.sql.clone());
            }
            b'B' => {
                let (_, name) = (word(), word());
                group.sql = statements.get(&name).cloned().unwrap_or_default();
            }
            b'Q' => group.sql = text(word()),
            _ => {}
        }
        group.bytes.extend_from_slice(&head);
        group.bytes.extend_from_slice(&body);
        if matches!(head[0], b'S' | b'Q' | b'p' | b'X') {
            return Ok(group);
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// A statement that raises an error.
fn raise(state: &str) -> Vec<u8> {
    let sql = format!(
        "DO $fault$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = 'a fault'; END $fault$\0"
    );
    message(b'Q', sql.as_bytes())
}

/// The message of an error with which a server ends a connection.
fn fatal(state: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{state}\0Ma fault\0\0");
    message(b'E', fields.as_bytes())
}

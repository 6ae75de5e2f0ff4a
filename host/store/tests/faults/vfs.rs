//! A file system below SQLite with injected faults: the system's own, where calls are counted, and
//! one call, or all from one on, return an error.

#![allow(unsafe_code, reason = "SQLite's interface to file systems is one of C")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock};

use libsqlite3_sys as ffi;

/// A call to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Call {
    Open,
    Delete,
    Access,
    Read,
    Write,
    Truncate,
    Sync,
    Size,
    Lock,
    Unlock,
    ShmMap,
    ShmLock,
}

impl Call {
    /// All calls, with the errors that SQLite's own file system returns for each, and those that it
    /// passes on.
    pub(crate) const ERRORS: [(Self, &'static [(&'static str, c_int)]); 12] = [
        (
            Self::Open,
            &[("CANTOPEN", 14), ("PERM", 3), ("NOMEM", 7), ("READONLY", 8)],
        ),
        (Self::Delete, &[("IOERR_DELETE", 2570)]),
        (Self::Access, &[("IOERR_ACCESS", 3338)]),
        (
            Self::Read,
            &[
                ("IOERR_READ", 266),
                ("IOERR_SHORT_READ", 522),
                ("IOERR_NOMEM", 3082),
                ("CORRUPT", 11),
                ("NOTADB", 26),
                ("SCHEMA", 17),
            ],
        ),
        (
            Self::Write,
            &[
                ("FULL", 13),
                ("IOERR_WRITE", 778),
                ("READONLY", 8),
                ("IOERR_NOMEM", 3082),
            ],
        ),
        (Self::Truncate, &[("IOERR_TRUNCATE", 1546), ("FULL", 13)]),
        (Self::Sync, &[("IOERR_FSYNC", 1034), ("FULL", 13)]),
        (Self::Size, &[("IOERR_FSTAT", 1802)]),
        (Self::Lock, &[("BUSY", 5), ("IOERR_LOCK", 3850)]),
        (Self::Unlock, &[("IOERR_UNLOCK", 2058)]),
        (
            Self::ShmMap,
            &[
                ("IOERR_SHMMAP", 5386),
                ("IOERR_SHMSIZE", 4874),
                ("READONLY_RECOVERY", 264),
                ("NOMEM", 7),
            ],
        ),
        (
            Self::ShmLock,
            &[
                ("BUSY", 5),
                ("LOCKED", 6),
                ("IOERR_SHMLOCK", 5130),
                ("PROTOCOL", 15),
            ],
        ),
    ];
}

/// Remaining calls of the armed kind before the failing one; negative if none fails.
static LEFT: AtomicI64 = AtomicI64::new(-1);
static CALL: AtomicI32 = AtomicI32::new(-1);
static CODE: AtomicI32 = AtomicI32::new(0);
/// Whether all later calls of the kind fail too.
static STAYS: AtomicBool = AtomicBool::new(false);
static FIRED: AtomicU64 = AtomicU64::new(0);

/// Statements with a fault, each with the fault.
static MET: Mutex<BTreeSet<(String, i32, c_int)>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The statement of the thread's connection.
    static STATEMENT: RefCell<String> = const { RefCell::new(String::new()) };
}

static REAL: OnceLock<Real> = OnceLock::new();

/// The system's own file system.
struct Real(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's own file systems are used by all threads at once.
unsafe impl Send for Real {}
// SAFETY: as above; nothing here changes it.
unsafe impl Sync for Real {}

/// Makes the call after `after` others of its kind fail, and all later ones if it `stays`.
pub(crate) fn arm(call: Call, code: c_int, after: u64, stays: bool) {
    CALL.store(call as i32, Ordering::SeqCst);
    CODE.store(code, Ordering::SeqCst);
    STAYS.store(stays, Ordering::SeqCst);
    FIRED.store(0, Ordering::SeqCst);
    LEFT.store(i64::try_from(after).unwrap_or(i64::MAX), Ordering::SeqCst);
}

/// Stops injecting faults; returns the number of failed calls.
pub(crate) fn disarm() -> u64 {
    LEFT.store(-1, Ordering::SeqCst);
    CALL.store(-1, Ordering::SeqCst);
    FIRED.load(Ordering::SeqCst)
}

/// The error of this call, if it must fail.
fn fault(call: Call) -> Option<c_int> {
    if CALL.load(Ordering::SeqCst) != call as i32 {
        return None;
    }
    let left = LEFT.fetch_sub(1, Ordering::SeqCst);
    let fails = left == 0 || (left < 0 && STAYS.load(Ordering::SeqCst));
    fails.then(|| {
        FIRED.fetch_add(1, Ordering::SeqCst);
        let code = CODE.load(Ordering::SeqCst);
        let statement = STATEMENT.with_borrow(Clone::clone);
        MET.lock().unwrap().insert((statement, call as i32, code));
        code
    })
}

/// Number of statements with a fault, and of pairs of both.
pub(crate) fn met() -> (usize, usize) {
    let met = MET.lock().unwrap();
    let statements: BTreeSet<&str> = met.iter().map(|(sql, ..)| sql.as_str()).collect();
    (statements.len(), met.len())
}

/// Traces the statements of each new connection.
unsafe extern "C" fn connected(
    connection: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    _: *const ffi::sqlite3_api_routines,
) -> c_int {
    let mask = ffi::SQLITE_TRACE_STMT as c_uint;
    // SAFETY: the connection is being opened; the callback keeps nothing of it.
    unsafe { ffi::sqlite3_trace_v2(connection, mask, Some(began), std::ptr::null_mut()) }
}

unsafe extern "C" fn began(
    _: c_uint,
    _: *mut c_void,
    statement: *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: SQLite hands over the statement that begins, whose text it owns.
    let text = unsafe {
        let text = ffi::sqlite3_sql(statement.cast());
        if text.is_null() {
            String::new()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    STATEMENT.with_borrow_mut(|of_thread| *of_thread = text);
    0
}

/// A file: SQLite's part, followed by the system's own file.
#[repr(C)]
struct File {
    methods: *const ffi::sqlite3_io_methods,
    real: *mut ffi::sqlite3_file,
}

/// Offset of the system's own file.
const REAL_AT: usize = size_of::<File>().next_multiple_of(16);

/// Makes all databases of this process use it.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the default file system lives as long as the process, and so does its copy.
        unsafe {
            let real = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!real.is_null());
            let _ = REAL.set(Real(real));
            let mut vfs = *real;
            vfs.zName = CString::new("faults").unwrap().into_raw();
            vfs.pNext = std::ptr::null_mut();
            vfs.szOsFile = (*real).szOsFile + c_int::try_from(REAL_AT).unwrap();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            vfs.xAccess = Some(access);
            vfs.xSleep = Some(sleep);
            let vfs = Box::into_raw(Box::new(vfs));
            assert_eq!(ffi::sqlite3_vfs_register(vfs, 1), 0);
            assert_eq!(ffi::sqlite3_auto_extension(Some(connected)), 0);
        }
    });
}

fn real() -> *mut ffi::sqlite3_vfs {
    REAL.get().expect("it is installed").0
}

/// The system's own file.
///
/// # Safety
/// The file was opened by [`open`].
unsafe fn real_file(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite gives back what `open` has filled.
    unsafe { (*file.cast::<File>()).real }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite has allocated `szOsFile` bytes, which are enough for both parts.
    unsafe {
        let own = file.cast::<File>();
        (*own).methods = std::ptr::null();
        if let Some(code) = fault(Call::Open) {
            return code;
        }
        (*own).real = file.cast::<u8>().add(REAL_AT).cast();
        let real = real();
        let code = ((*real).xOpen.unwrap())(real, name, (*own).real, flags, out);
        if !(*(*own).real).pMethods.is_null() {
            (*own).methods = &raw const METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    if let Some(code) = fault(Call::Delete) {
        return code;
    }
    // SAFETY: as SQLite called it.
    unsafe { ((*real()).xDelete.unwrap())(real(), name, sync) }
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    if let Some(code) = fault(Call::Access) {
        return code;
    }
    // SAFETY: as SQLite called it.
    unsafe { ((*real()).xAccess.unwrap())(real(), name, flags, out) }
}

/// No sleeping: tests do not wait for locks.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, us: c_int) -> c_int {
    std::thread::yield_now();
    us
}

/// Methods that are passed on, unless a fault is injected.
macro_rules! passed_on {
    ($($(#[$call:ident])? $name:ident => $field:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $kind)*) -> $answer {
            $(if let Some(code) = fault(Call::$call) {
                return code;
            })?
            // SAFETY: as SQLite called it, on the file that `open` opened.
            unsafe {
                let real = real_file(file);
                ((*(*real).pMethods).$field.unwrap())(real $(, $argument)*)
            }
        })+
    };
}

passed_on!(
    close => xClose() -> c_int;
    #[Read] read => xRead(to: *mut c_void, length: c_int, at: i64) -> c_int;
    #[Write] write => xWrite(from: *const c_void, length: c_int, at: i64) -> c_int;
    #[Truncate] truncate => xTruncate(size: i64) -> c_int;
    #[Sync] sync => xSync(flags: c_int) -> c_int;
    #[Size] file_size => xFileSize(out: *mut i64) -> c_int;
    #[Lock] lock => xLock(level: c_int) -> c_int;
    #[Unlock] unlock => xUnlock(level: c_int) -> c_int;
    check_reserved => xCheckReservedLock(out: *mut c_int) -> c_int;
    control => xFileControl(op: c_int, argument: *mut c_void) -> c_int;
    sector_size => xSectorSize() -> c_int;
    characteristics => xDeviceCharacteristics() -> c_int;
    #[ShmMap] shm_map => xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int;
    shm_unmap => xShmUnmap(delete: c_int) -> c_int;
);

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // Releasing a lock never fails.
    if flags & ffi::SQLITE_SHM_LOCK != 0
        && let Some(code) = fault(Call::ShmLock)
    {
        return code;
    }
    // SAFETY: as SQLite called it, on the file that `open` opened.
    unsafe {
        let real = real_file(file);
        ((*(*real).pMethods).xShmLock.unwrap())(real, first, count, flags)
    }
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as SQLite called it, on the file that `open` opened.
    unsafe {
        let real = real_file(file);
        ((*(*real).pMethods).xShmBarrier.unwrap())(real);
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Without memory mapping, which would bypass it.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

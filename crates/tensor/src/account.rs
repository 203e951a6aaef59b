//! Accounts of memory: one for the process, and one for each session, whose bytes count in both.
//!
//! Every buffer is charged to the current account of the thread that makes it ([`Account::enter`]), and discharged from the same
//! account wherever it is dropped. An allocation beyond a limit is `RESOURCE_EXHAUSTED` before any memory is taken.
//!
//! A charge is two additions to counters that only this thread writes, so that threads don't wait for each other's cache lines.
//! An account's sum is that of its counters: exact while no thread allocates. Limits are checked for every large block, and for
//! small ones each time a thread has taken [`CHECKED_BYTES`] of them.
//!
//! The counters of an account are never freed, since buffers refer to them without counting. They are used again for
//! another account when the last [`Account`] that names them was dropped, after which nothing is charged to them, and their sum
//! has come down to 0, after which no buffer refers to them.

use crate::machine_memory::MachineMemory;
use crate::recycler::Recycler;
use crate::{Result, Status};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// A block of at least this size is checked against the limits, and so is what a thread has taken in smaller ones.
const CHECKED_BYTES: usize = 1 << 20;

/// Fresh memory of at least this size is also compared with what the machine has left, which other processes share.
pub(crate) const MACHINE_CHECKED_BYTES: usize = 64 << 20;

/// The share of the machine's or the control group's memory that a process may use when nothing else is said.
const DEFAULT_PERCENT: u64 = 80;

/// Threads that have counters of their own; the others share one.
const OWN_SLOTS_MAX: usize = 64;

/// The number of a thread that has no counters yet.
const NO_SLOT: u32 = u32::MAX;

/// One thread's part of an account, on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Counter(AtomicIsize);

/// The counters of an account.
pub(crate) struct Ledger {
    /// By the threads' slots; the first is shared by the threads that have none.
    counters: Box<[Counter]>,
    limit: AtomicUsize,
    /// How many [`Account`]s name it.
    handles: AtomicUsize,
    /// What it is found by. It may be a secret.
    key: Mutex<String>,
    /// What people know it by.
    number: AtomicU64,
    /// Accounts that together have a limit of their own, this one among them.
    group: Mutex<Option<Arc<MemoryGroup>>>,
}

/// Accounts that together may hold so much, such as those of one client's sessions. One that is over belongs to it as long as something is
/// charged to it.
pub struct MemoryGroup {
    name: String,
    limit_bytes: usize,
    members: Mutex<Vec<&'static Ledger>>,
}

impl MemoryGroup {
    /// Makes a group without members; the name is for people.
    pub fn new(name: &str, limit_bytes: usize) -> Arc<MemoryGroup> {
        Arc::new(MemoryGroup { name: name.to_owned(), limit_bytes, members: Mutex::default() })
    }

    /// Returns how many bytes its members hold.
    pub fn used_bytes(&self) -> usize {
        let sum: isize = self.members.lock().iter().map(|ledger| ledger.sum()).sum();
        sum.max(0).unsigned_abs()
    }

    /// Returns an error if this many more bytes don't fit.
    fn check(&self, bytes: usize) -> Result<()> {
        let used = self.used_bytes();
        match used.saturating_add(bytes) > self.limit_bytes {
            true => Err(refused(bytes, &format!("{} in all sessions", self.name), used, self.limit_bytes)),
            false => Ok(()),
        }
    }
}

/// The account of a session. Clones are the same account.
pub struct Account(&'static Ledger);

/// The sums of an account at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountState {
    /// The number of the session; 0 is the process.
    pub session: u64,
    /// The bytes in use.
    pub used_bytes: usize,
    /// The most bytes that may be in use.
    pub limit_bytes: usize,
    /// Whether the session is over, and only what it left behind is in the account: variables, for the most part.
    pub is_closed: bool,
}

/// The contents of this process's accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryState {
    /// All that is in use.
    pub process: AccountState,
    /// Blocks that wait to be used again, which are given back before anything is refused.
    pub spare_bytes: usize,
    /// The sessions, those that are over too as long as something of them is left.
    pub sessions: Vec<AccountState>,
}

impl fmt::Display for MemoryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccountState { used_bytes, limit_bytes, .. } = self.process;
        write!(f, "memory: {used_bytes} bytes in use of at most {limit_bytes}, {} spare", self.spare_bytes)?;
        for session in self.sessions.iter().filter(|session| session.used_bytes > 0) {
            let over = if session.is_closed { " (closed)" } else { "" };
            write!(f, "; session {}{over}: {}", session.session, session.used_bytes)?;
        }
        Ok(())
    }
}

/// Returns what the accounts of this process hold.
pub fn memory_state() -> MemoryState {
    let mut sessions: Vec<AccountState> = {
        let pool = POOL.lock();
        pool.in_use.iter().map(|ledger| ledger.state()).collect()
    };
    sessions.retain(|state| !state.is_closed || state.used_bytes > 0);
    sessions.sort_by_key(|state| state.session);
    let process = AccountState { limit_bytes: memory_limit(), is_closed: false, ..PROCESS.state() };
    MemoryState { process, spare_bytes: Recycler::stats().1, sessions }
}

/// Bounds what this process may use from now on.
pub fn set_memory_limit(bytes: usize) {
    PROCESS.limit.store(bytes.max(1), Ordering::Relaxed);
}

/// Returns the most bytes that this process may use; the default is 80 % of the memory of its control group or machine.
pub fn memory_limit() -> usize {
    match PROCESS.limit.load(Ordering::Relaxed) {
        0 => {
            let total = MachineMemory::of_this_machine().total().unwrap_or(isize::MAX as u64);
            let bytes = usize::try_from(total / 100 * DEFAULT_PERCENT).unwrap_or(isize::MAX as usize);
            PROCESS.limit.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Bounds what each session that begins from now on may use; `usize::MAX` leaves it all that the process has.
pub fn set_session_memory_limit(bytes: usize) {
    SESSION_LIMIT.store(bytes.max(1), Ordering::Relaxed);
}

/// The account of everything. Its limit is 0 until it is looked up.
static PROCESS: LazyLock<&'static Ledger> = LazyLock::new(|| Ledger::leaked(0));
static SESSION_LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Held while a large block is compared with the limits and charged, so that of two that fit only one by one, one does.
static LARGE: Mutex<()> = Mutex::new(());

struct Pool {
    in_use: Vec<&'static Ledger>,
    free: Vec<&'static Ledger>,
    opened: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { in_use: Vec::new(), free: Vec::new(), opened: 0 });

impl Account {
    /// Returns the account of a key, such as a session's handle, after opening it if nobody has it.
    pub fn of(key: &str) -> Account {
        let mut pool = POOL.lock();
        let is_open = |ledger: &&&'static Ledger| *ledger.key.lock() == key && ledger.add_handle();
        if let Some(ledger) = pool.in_use.iter().find(is_open) {
            return Account(ledger);
        }
        pool.reclaim();
        pool.opened += 1;
        let ledger = pool.free.pop().unwrap_or_else(|| Ledger::leaked(0));
        ledger.limit.store(SESSION_LIMIT.load(Ordering::Relaxed), Ordering::Relaxed);
        ledger.number.store(pool.opened, Ordering::Relaxed);
        key.clone_into(&mut ledger.key.lock());
        ledger.handles.store(1, Ordering::Release);
        pool.in_use.push(ledger);
        Account(ledger)
    }

    /// Opens an account without a key.
    pub fn open() -> Account {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Account::of(&format!("unnamed {}", OPENED.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the account that is current on this thread, if it is that of a session.
    pub fn current() -> Option<Account> {
        let ledger = LOCAL.with(|local| local.current.get())?;
        // The scope that made it current still holds it.
        ledger.handles.fetch_add(1, Ordering::Relaxed);
        Some(Account(ledger))
    }

    /// Charges this thread's allocations to this account, until the scope ends.
    pub fn enter(&self) -> AccountScope<'_> {
        AccountScope { before: LOCAL.with(|local| local.current.replace(Some(self.0))), held: PhantomData }
    }

    /// Makes it a member of a group, instead of its current one, if any.
    pub fn join(&self, group: &Arc<MemoryGroup>) {
        self.0.leave_group();
        group.members.lock().push(self.0);
        *self.0.group.lock() = Some(group.clone());
    }

    /// Sets the limit.
    pub fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns its state.
    pub fn state(&self) -> AccountState {
        self.0.state()
    }
}

impl Clone for Account {
    fn clone(&self) -> Account {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Account(self.0)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::Release);
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.state(), f)
    }
}

/// How long an account is current on a thread.
pub struct AccountScope<'a> {
    before: Option<&'static Ledger>,
    /// It ends on the thread on which it began, and before the account does.
    held: PhantomData<(&'a Account, *const ())>,
}

impl Drop for AccountScope<'_> {
    fn drop(&mut self) {
        LOCAL.with(|local| local.current.set(self.before));
    }
}

impl Pool {
    /// Finds the ledgers that nobody names and that nothing is charged to.
    fn reclaim(&mut self) {
        let free = &mut self.free;
        self.in_use.retain(|ledger| {
            let is_free = ledger.handles.load(Ordering::Acquire) == 0 && ledger.sum() == 0;
            if is_free {
                ledger.key.lock().clear();
                ledger.leave_group();
                free.push(ledger);
            }
            !is_free
        });
    }
}

impl Ledger {
    fn leaked(limit: usize) -> &'static Ledger {
        Box::leak(Box::new(Ledger {
            counters: (0..num_slots()).map(|_| Counter::default()).collect(),
            limit: AtomicUsize::new(limit),
            handles: AtomicUsize::new(0),
            key: Mutex::new(String::new()),
            number: AtomicU64::new(0),
            group: Mutex::new(None),
        }))
    }

    fn leave_group(&'static self) {
        let group = self.group.lock().take();
        if let Some(group) = group {
            group.members.lock().retain(|member| !std::ptr::eq(*member, self));
        }
    }

    /// Returns an error if this many more bytes don't fit, together with the others of its group.
    fn check_group(&self, bytes: usize) -> Result<()> {
        let group = self.group.lock().clone();
        group.map_or(Ok(()), |group| group.check(bytes))
    }

    /// Names an open ledger once more; one that is closed stays closed.
    fn add_handle(&self) -> bool {
        let more = |handles: usize| (handles > 0).then_some(handles + 1);
        self.handles.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn sum(&self) -> isize {
        self.counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    fn state(&self) -> AccountState {
        AccountState {
            session: self.number.load(Ordering::Relaxed),
            // While others allocate and free, a sum may miss the one and see the other.
            used_bytes: self.sum().max(0).unsigned_abs(),
            limit_bytes: self.limit.load(Ordering::Relaxed),
            is_closed: self.handles.load(Ordering::Relaxed) == 0,
        }
    }

    fn add(&self, slot: u32, bytes: isize) {
        let Some(counter) = self.counters.get(slot as usize) else { return };
        if slot == 0 {
            counter.0.fetch_add(bytes, Ordering::Relaxed);
        } else {
            // Nobody else writes it as long as this thread lives.
            counter.0.store(counter.0.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        }
    }
}

/// Who a block is charged to besides the process.
pub(crate) type Charged = Option<&'static Ledger>;

/// Charges `bytes` to the account that is current, or says why they don't fit.
pub(crate) fn charge(bytes: usize) -> Result<Charged> {
    LOCAL.with(|local| {
        let charged = local.current.get();
        if bytes >= CHECKED_BYTES {
            let _one_by_one = LARGE.lock();
            check(charged, bytes)?;
            add(local, charged, bytes as isize);
            return Ok(charged);
        }
        let unchecked = local.unchecked.get() + bytes;
        if unchecked < CHECKED_BYTES {
            local.unchecked.set(unchecked);
        } else {
            check(charged, bytes)?;
            local.unchecked.set(0);
        }
        add(local, charged, bytes as isize);
        Ok(charged)
    })
}

/// Charges memory that has been allocated already, whether it fits or not.
pub(crate) fn charge_anyway(bytes: usize) -> Charged {
    LOCAL.with(|local| {
        let charged = local.current.get();
        add(local, charged, bytes as isize);
        charged
    })
}

/// Takes back a charge.
pub(crate) fn discharge(charged: Charged, bytes: usize) {
    LOCAL.with(|local| add(local, charged, -(bytes as isize)));
}

/// Charges what takes the place of something that is charged there, whether it fits or not.
pub(crate) fn charge_to(charged: Charged, bytes: usize) {
    LOCAL.with(|local| add(local, charged, bytes as isize));
}

/// Refuses an account that holds too much after a charge was moved to it; looked at as often as for new charges.
pub(crate) fn check_recharged(account: &Account, bytes: usize) -> Result<()> {
    if !LOCAL.with(|local| local.passes_check(bytes)) {
        return Ok(());
    }
    let state = account.state();
    if state.used_bytes <= state.limit_bytes {
        return account.0.check_group(0);
    }
    Err(refused(bytes, &format!("session {}", state.session), state.used_bytes, state.limit_bytes))
}

/// Moves a charge from one account to another, whether it fits or not.
pub(crate) fn recharge(from: Charged, to: &Account, bytes: usize) -> &'static Ledger {
    LOCAL.with(|local| {
        let slot = local.slot();
        if let Some(from) = from {
            from.add(slot, -(bytes as isize));
        }
        to.0.add(slot, bytes as isize);
    });
    to.0
}

fn add(local: &Local, charged: Charged, bytes: isize) {
    let slot = local.slot();
    PROCESS.add(slot, bytes);
    if let Some(ledger) = charged {
        ledger.add(slot, bytes);
    }
}

/// Refuses what doesn't fit into an account or the process.
fn check(charged: Charged, bytes: usize) -> Result<()> {
    if let Some(ledger) = charged {
        let state = ledger.state();
        if bytes > state.limit_bytes.saturating_sub(state.used_bytes) {
            return Err(refused(bytes, &format!("session {}", state.session), state.used_bytes, state.limit_bytes));
        }
        ledger.check_group(bytes)?;
    }
    let (used, limit) = (PROCESS.state().used_bytes, memory_limit());
    if bytes > limit.saturating_sub(used) {
        let of_session = charged.map_or(String::new(), |ledger| {
            let AccountState { session, used_bytes, .. } = ledger.state();
            format!(", {used_bytes} of them by session {session}")
        });
        return Err(refused(bytes, "the process", used, limit).append(of_session));
    }
    if used.saturating_add(bytes).saturating_add(Recycler::stats().1) > limit {
        Recycler::trim();
    }
    Ok(())
}

fn refused(bytes: usize, who: &str, used: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!("{bytes} bytes don't fit: {who} uses {used} of at most {limit} bytes"))
}

/// Returns an error if this many bytes don't fit now, for memory that is allocated before it can be charged.
pub(crate) fn check_fits(bytes: usize) -> Result<()> {
    check(LOCAL.with(|local| local.current.get()), bytes)
}

/// Refuses fresh memory that the machine doesn't have now: other processes share it.
pub(crate) fn check_machine(bytes: usize) -> Result<()> {
    let left = || MachineMemory::of_this_machine().left().map_or(usize::MAX, |left| left as usize);
    if bytes <= left() {
        return Ok(());
    }
    Recycler::trim();
    let left = left();
    if bytes <= left {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "{bytes} bytes don't fit: the machine or the control group has {left} bytes left, which other processes share"
    )))
}

/// A charge for memory outside of buffers, such as a list, a table or a message. Dropping it ends the charge.
#[derive(Debug)]
pub struct Charge {
    charged: ChargedTo,
    bytes: usize,
}

struct ChargedTo(Charged);

impl fmt::Debug for ChargedTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {:?}", self.0.map(|ledger| ledger.number.load(Ordering::Relaxed)))
    }
}

impl Charge {
    /// Charges the account that is current, or says why the bytes don't fit.
    pub fn new(bytes: usize) -> Result<Charge> {
        Ok(Charge { charged: ChargedTo(charge(bytes)?), bytes })
    }

    /// Charges what is there already.
    pub fn anyway(bytes: usize) -> Charge {
        Charge { charged: ChargedTo(charge_anyway(bytes)), bytes }
    }

    /// Returns how many bytes are charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Moves the charge to an account. If the account then exceeds its limit, returns an error.
    pub fn move_to(&mut self, account: &Account) -> Result<()> {
        self.charged = ChargedTo(Some(recharge(self.charged.0, account, self.bytes)));
        check_recharged(account, self.bytes)
    }

    /// Charges as many bytes as there are now to the same account, whether they fit or not.
    pub fn set(&mut self, bytes: usize) {
        if self.bytes == 0 {
            self.charged = ChargedTo(LOCAL.with(|local| local.current.get()));
        }
        LOCAL.with(|local| add(local, self.charged.0, bytes as isize - self.bytes as isize));
        self.bytes = bytes;
    }

    /// Charges as many bytes as there are now to the same account, or says why they don't fit.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        if self.bytes == 0 {
            // An account to which nothing is charged may belong to another owner by now.
            self.charged = ChargedTo(LOCAL.with(|local| local.current.get()));
        }
        let more = bytes.saturating_sub(self.bytes);
        if more >= CHECKED_BYTES || (more > 0 && LOCAL.with(|local| local.passes_check(more))) {
            check(self.charged.0, more)?;
        }
        LOCAL.with(|local| add(local, self.charged.0, bytes as isize - self.bytes as isize));
        self.bytes = bytes;
        Ok(())
    }
}

impl Clone for Charge {
    fn clone(&self) -> Charge {
        Charge::anyway(self.bytes)
    }
}

impl Default for Charge {
    fn default() -> Charge {
        Charge { charged: ChargedTo(None), bytes: 0 }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            discharge(self.charged.0, self.bytes);
        }
    }
}

/// A thread's state of accounts.
struct Local {
    current: Cell<Charged>,
    /// The bytes taken in small blocks since the last check of the limits.
    unchecked: Cell<usize>,
    slot: Cell<u32>,
}

thread_local! {
    static LOCAL: Local =
        const { Local { current: Cell::new(None), unchecked: Cell::new(0), slot: Cell::new(NO_SLOT) } };
    /// Gives the slot back when the thread ends.
    static SLOT: RefCell<Option<OwnSlot>> = const { RefCell::new(None) };
}

impl Local {
    fn slot(&self) -> u32 {
        match self.slot.get() {
            NO_SLOT => self.take_slot(),
            slot => slot,
        }
    }

    #[cold]
    fn take_slot(&self) -> u32 {
        // While it ends, a thread can't be given one that would be given back.
        let own = SLOT.try_with(|slot| {
            let own = OwnSlot::take();
            let number = own.as_ref().map_or(0, |own| own.0);
            *slot.borrow_mut() = own;
            number
        });
        let number = own.unwrap_or(0);
        self.slot.set(number);
        number
    }

    /// Counts the bytes of a small block; returns whether it is time to check the limits.
    fn passes_check(&self, bytes: usize) -> bool {
        let unchecked = self.unchecked.get() + bytes;
        let is_time = unchecked >= CHECKED_BYTES;
        self.unchecked.set(if is_time { 0 } else { unchecked });
        is_time
    }
}

/// A thread's own place in all ledgers.
struct OwnSlot(u32);

static FREE_SLOTS: Mutex<Option<Vec<u32>>> = Mutex::new(None);

fn num_slots() -> usize {
    static SLOTS: LazyLock<usize> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (2 * cores + 6).min(OWN_SLOTS_MAX) + 1
    });
    *SLOTS
}

impl OwnSlot {
    fn take() -> Option<OwnSlot> {
        let mut free = FREE_SLOTS.lock();
        free.get_or_insert_with(|| (1..num_slots() as u32).rev().collect()).pop().map(OwnSlot)
    }
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        // What the thread frees from now on counts in the shared counters.
        LOCAL.with(|local| local.slot.set(0));
        FREE_SLOTS.lock().get_or_insert_default().push(self.0);
    }
}

#[cfg(test)]
mod tests;

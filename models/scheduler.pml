/* The dynamic scheduler's queues: two workers, two schedulers, rings of two entries.
 *
 *   ahead[w]      scheduler w -> worker w: tasks handed out at the start; the worker looks at their events
 *   ready[w]      scheduler w -> worker w: tasks whose events are complete
 *   milestone[s]  workers -> scheduler s: an event is complete
 *   broadcast     workers -> both schedulers; each releases its slice of the tasks that waited
 *
 * The rings are those of src/backends/cpu_threads/rings.h: a writer reserves a position, writes the entry, publishes it
 * by the slot's turn number; a reader takes a position, reads, and frees the slot. A reservation is one step here (there
 * a compare-and-exchange). Waiting is a blocked step, so that a state where nobody can go on is a deadlock.
 *
 * The tasks (two schedulers, so a slice is half of an event's waiters):
 *
 *   0 w0 -> E0 ; 1 w1 -> E1           handed out ahead, wait for nothing
 *   E0 (broadcast): 2 -> E2 (slice 0), 3 -> E3 (slice 1)
 *   E1 (broadcast): 4 -> E3 (slice 0)
 *   E2 (broadcast): 5 -> E4 (slice 0)
 *   E4 (milestone of scheduler 0): 8
 *   6 w0 waits for E3 >= 2 ; 7 w0 for E3 >= 1 : ahead of what they wait for
 *
 * Twins that must fail, by -D:
 *   NO_BACK_PRESSURE  a writer does not look whether the slot is free
 *   EARLY_PUBLISH     the turn number is published before the entry is written
 *   ONE_CURSOR        the broadcast's writers look at the first reader's cursor only
 *   BLOCKING_HEAD     a worker waits for the first task handed out ahead and does not look at its ready ring
 *   DOUBLE_RELEASE    both schedulers release the whole event instead of a slice each
 */
#define ENTRIES 2
#define TASKS 9
#define EVENTS 5
#define NONE 255

/* Checked properties; their names are what a violation prints. */
bool no_entry_overwritten = true;
bool an_entry_is_written_before_it_is_read = true;
bool a_broadcast_is_kept_until_all_have_read_it = true;
bool no_task_runs_twice = true;
bool a_task_runs_after_what_it_waits_for = true;
bool no_task_is_lost = true;

typedef Ring {
  byte turn[ENTRIES];
  byte item[ENTRIES];
  bool held[ENTRIES]; /* for the properties: written and not yet read */
  byte head;
  byte tail
};
#define AHEAD(w) (w)
#define READY(w) (2 + (w))
#define MILESTONE(s) (4 + (s))
Ring ring[6];

byte b_turn[ENTRIES], b_item[ENTRIES], b_unread[ENTRIES];
byte b_tail;
byte b_cursor[2];

byte count[EVENTS];
byte runs[TASKS];
byte left = TASKS;

#define HAS_ROOM(r) (ring[r].turn[ring[r].tail % ENTRIES] == ring[r].tail)
#define HAS_ITEM(r) (ring[r].turn[ring[r].head % ENTRIES] == ring[r].head + 1)
#define BOTH_HAVE_READ (b_tail - b_cursor[0] < ENTRIES && b_tail - b_cursor[1] < ENTRIES)

/* Two or three steps: reserve, write, publish. */
inline write_and_publish(r, x) {
#ifdef EARLY_PUBLISH
  ring[r].turn[at % ENTRIES] = at + 1;
#endif
  atomic {
    no_entry_overwritten = !ring[r].held[at % ENTRIES];
    assert(no_entry_overwritten);
    ring[r].item[at % ENTRIES] = x;
    ring[r].held[at % ENTRIES] = true
  }
#ifndef EARLY_PUBLISH
  ring[r].turn[at % ENTRIES] = at + 1;
#endif
}
inline read_and_free(r, x) {
  atomic {
    an_entry_is_written_before_it_is_read = ring[r].held[at % ENTRIES];
    assert(an_entry_is_written_before_it_is_read);
    x = ring[r].item[at % ENTRIES];
    ring[r].held[at % ENTRIES] = false
  }
  ring[r].turn[at % ENTRIES] = at + ENTRIES
}
#ifdef NO_BACK_PRESSURE
#define MAY_PUSH(r) true
#else
#define MAY_PUSH(r) HAS_ROOM(r)
#endif

inline broadcast(x) {
  atomic {
#ifdef ONE_CURSOR
    b_tail - b_cursor[0] < ENTRIES;
#else
    BOTH_HAVE_READ;
#endif
    at = b_tail;
    b_tail++
  }
  atomic {
    a_broadcast_is_kept_until_all_have_read_it = (b_unread[at % ENTRIES] == 0);
    assert(a_broadcast_is_kept_until_all_have_read_it);
    b_item[at % ENTRIES] = x;
    b_unread[at % ENTRIES] = 2
  }
  b_turn[at % ENTRIES] = at + 1
}

/* A worker adds to the event and tells who must know that it is complete. */
inline signal(e) {
  count[e]++;
  if
  :: e == 0 || e == 1 || e == 2 -> broadcast(e)
  :: e == 4 ->
     atomic {
       MAY_PUSH(MILESTONE(0));
       at = ring[MILESTONE(0)].tail;
       ring[MILESTONE(0)].tail++
     }
     write_and_publish(MILESTONE(0), e)
  :: e == 3 /* only tasks handed out ahead wait for it */
  fi
}

inline run_task(t) {
  atomic {
    runs[t]++;
    no_task_runs_twice = (runs[t] == 1);
    assert(no_task_runs_twice);
    a_task_runs_after_what_it_waits_for =
        (t == 0 || t == 1 || ((t == 2 || t == 3) && count[0] == 1) || (t == 4 && count[1] == 1) ||
         (t == 5 && count[2] == 1) || (t == 6 && count[3] >= 2) || (t == 7 && count[3] >= 1) ||
         (t == 8 && count[4] == 1));
    assert(a_task_runs_after_what_it_waits_for)
  }
  e = (t == 0 -> 0 : (t == 1 -> 1 : (t == 2 -> 2 : (t == 3 || t == 4 -> 3 : (t == 5 -> 4 : NONE)))));
  if
  :: e != NONE -> signal(e)
  :: else
  fi;
  left--
}

#define REACHED(t) ((t) < 2 || ((t) == 6 && count[3] >= 2) || ((t) == 7 && count[3] >= 1))

proctype worker(byte w) {
  byte first = NONE, task = NONE, at, e;
  do
  :: left == 0 -> break
#ifdef BLOCKING_HEAD
  :: atomic { first == NONE && HAS_ITEM(READY(w)) -> at = ring[READY(w)].head; ring[READY(w)].head++ }
#else
  :: atomic { HAS_ITEM(READY(w)) -> at = ring[READY(w)].head; ring[READY(w)].head++ }
#endif
     read_and_free(READY(w), task);
     goto run_it
  :: atomic { first == NONE && HAS_ITEM(AHEAD(w)) -> at = ring[AHEAD(w)].head; ring[AHEAD(w)].head++ }
     read_and_free(AHEAD(w), first)
  :: atomic { first != NONE && REACHED(first) -> task = first; first = NONE }
run_it:
     run_task(task)
  od
}

proctype scheduler(byte s) {
  byte next = 0, at, e, task;
  byte n = (s == 0 -> 3 : 1);  /* tasks to hand out ahead */
  chan kept = [TASKS] of {byte}; /* released, no room yet */
  do
  /* Nothing is published after the last task: what is there now is all. */
  :: left == 0 && b_cursor[s] == b_tail && !HAS_ITEM(MILESTONE(s)) && empty(kept) && next == n -> break
  :: atomic { next < n && MAY_PUSH(AHEAD(s)) -> at = ring[AHEAD(s)].tail; ring[AHEAD(s)].tail++ }
     task = (s == 1 -> 1 : (next == 0 -> 0 : 5 + next));
     write_and_publish(AHEAD(s), task);
     next++
  :: atomic { HAS_ITEM(MILESTONE(s)) -> at = ring[MILESTONE(s)].head; ring[MILESTONE(s)].head++ }
     read_and_free(MILESTONE(s), e);
     kept!8
  :: b_turn[b_cursor[s] % ENTRIES] == b_cursor[s] + 1 ->
     atomic {
       e = b_item[b_cursor[s] % ENTRIES];
       b_unread[b_cursor[s] % ENTRIES]--
     }
     b_cursor[s]++;
     if
#ifdef DOUBLE_RELEASE
     :: e == 0 -> kept!2; kept!3
#else
     :: e == 0 -> kept!(2 + s)
#endif
     :: e == 1 && s == 0 -> kept!4
     :: e == 2 && s == 0 -> kept!5
     :: else
     fi
  :: atomic { nempty(kept) && MAY_PUSH(READY(s)) -> at = ring[READY(s)].tail; ring[READY(s)].tail++; kept?task }
     write_and_publish(READY(s), task)
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. 5) {
      ring[i].turn[1] = 1
    }
    run worker(0);
    run worker(1);
    run scheduler(0);
    run scheduler(1)
  }
  _nr_pr == 1;
  for (i : 0 .. TASKS - 1) {
    no_task_is_lost = (runs[i] == 1);
    assert(no_task_is_lost)
  }
}

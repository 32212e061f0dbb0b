/* The megakernel frame of one worker: instruction slots, pages, and the roles that share them.
 *
 * A controller fills two instruction slots; a weight loader, a consumer and a store role walk the same instructions, each
 * at its own pace. Every instruction has three logical pages: two for weights (filled by the loader, read by the
 * consumer) and one for results (filled by the consumer, read by the store role). The controller maps them to physical
 * pages in the order of the instructions; a page's last user releases it, and only then is it filled again. So the
 * loader runs ahead: it fills pages of instruction i + 1 while i is computed.
 *
 *   instruction_arrived    controller -> roles: the slot holds the next instruction and its page map
 *   page_full              op-local: filler -> reader
 *   page_finished          last user -> next filler: how often the page was released
 *   computed               op-local: consumer -> store role
 *   instruction_finished   roles -> controller: none of them looks at the slot any more
 *   event                  store role -> whoever waits; here the consumer of the next instruction but one
 *
 * Twins that must fail, by -D:
 *   EARLY_RELEASE  the consumer releases the weight page before it has read it
 *   SLOT_REUSE     the controller does not wait for instruction_finished
 *   NO_PAGE_WAIT   the loader does not wait for page_finished
 *   PAGE_CYCLE     result pages are mapped behind the weights of all instructions
 *   LOST_EVENT     the store role finishes the instruction without signalling the event
 */
#define INSTRUCTIONS 4
#define SLOTS 2
#define PAGES 4
#define LOGICAL 3
#define ROLES 3
#define NOTHING 255

#ifdef PAGE_CYCLE
#define WEIGHT_USE(i) (2 * (i))
#define RESULT_USE(i) (2 * INSTRUCTIONS + (i))
#else
#define WEIGHT_USE(i) (LOGICAL * (i))
#define RESULT_USE(i) (LOGICAL * (i) + 2)
#endif

/* Checked properties; their names are what a violation prints. */
bool no_page_overwritten_while_in_use = true;
bool a_page_holds_what_its_reader_expects = true;
bool no_slot_overwritten_while_in_use = true;
bool a_slot_holds_the_next_instruction = true;
bool every_instruction_is_stored_once = true;

byte slot_instruction[SLOTS] = NOTHING;
byte weight_use[SLOTS], result_use[SLOTS]; /* number of the use of a page: page = use % PAGES, round = use / PAGES */
byte arrived[SLOTS];                       /* how often the slot was filled */
byte finished[SLOTS];                      /* how often a role was through with it */
byte looking[SLOTS];                       /* roles that are between reading the slot and finishing */

byte page_content[PAGES] = NOTHING; /* the use whose data it holds */
bool page_in_use[PAGES];
byte page_finished[PAGES];
bool page_full[LOGICAL * INSTRUCTIONS];
bool computed[INSTRUCTIONS];
bool event[INSTRUCTIONS];
byte stored[INSTRUCTIONS];

inline fill_page(use) {
  atomic {
    no_page_overwritten_while_in_use = !page_in_use[(use) % PAGES];
    assert(no_page_overwritten_while_in_use);
    page_in_use[(use) % PAGES] = true;
    page_content[(use) % PAGES] = use;
  }
  page_full[use] = true
}

inline read_page(use) {
  atomic {
    a_page_holds_what_its_reader_expects = (page_content[(use) % PAGES] == use);
    assert(a_page_holds_what_its_reader_expects);
    page_in_use[(use) % PAGES] = false
  }
}

inline release_page(use) { page_finished[(use) % PAGES]++ }

/* A role reads the slot's words one after another; the slot must not change under it. */
inline enter_slot(i) {
  atomic {
    arrived[i % SLOTS] == i / SLOTS + 1;
    looking[i % SLOTS]++;
  }
  atomic {
    a_slot_holds_the_next_instruction = (slot_instruction[i % SLOTS] == i);
    assert(a_slot_holds_the_next_instruction)
  }
}
inline leave_slot(i) {
  atomic {
    looking[i % SLOTS]--;
    finished[i % SLOTS]++
  }
}

proctype controller() {
  byte i;
  for (i : 0 .. INSTRUCTIONS - 1) {
#ifndef SLOT_REUSE
    finished[i % SLOTS] == ROLES * (i / SLOTS);
#endif
    atomic {
      no_slot_overwritten_while_in_use = (looking[i % SLOTS] == 0);
      assert(no_slot_overwritten_while_in_use);
      slot_instruction[i % SLOTS] = i;
      weight_use[i % SLOTS] = WEIGHT_USE(i);
      result_use[i % SLOTS] = RESULT_USE(i)
    }
    arrived[i % SLOTS]++
  }
}

proctype loader() {
  byte i, k, use;
  for (i : 0 .. INSTRUCTIONS - 1) {
    enter_slot(i);
    use = weight_use[i % SLOTS];
    for (k : 0 .. 1) {
#ifndef NO_PAGE_WAIT
      page_finished[(use + k) % PAGES] == (use + k) / PAGES;
#endif
      fill_page(use + k)
    }
    leave_slot(i)
  }
}

proctype consumer() {
  byte i, k, use, result;
  for (i : 0 .. INSTRUCTIONS - 1) {
    enter_slot(i);
    use = weight_use[i % SLOTS];
    result = result_use[i % SLOTS];
    /* The event of the instruction before the last: activations. Weights did not wait for it. */
    i < 2 || event[i - 2];
    for (k : 0 .. 1) {
      page_full[use + k];
#ifdef EARLY_RELEASE
      release_page(use + k);
      read_page(use + k)
#else
      read_page(use + k);
      release_page(use + k)
#endif
    }
    page_finished[result % PAGES] == result / PAGES;
    fill_page(result);
    computed[i] = true;
    leave_slot(i)
  }
}

proctype store() {
  byte i, use;
  for (i : 0 .. INSTRUCTIONS - 1) {
    enter_slot(i);
    use = result_use[i % SLOTS];
    computed[i];
    page_full[use];
    read_page(use);
    release_page(use);
    stored[i]++;
#ifdef LOST_EVENT
    event[i] = (i != 1);
#else
    event[i] = true;
#endif
    leave_slot(i)
  }
}

init {
  byte i;
  atomic {
    run controller();
    run loader();
    run consumer();
    run store()
  }
  _nr_pr == 1;
  for (i : 0 .. INSTRUCTIONS - 1) {
    every_instruction_is_stored_once = (stored[i] == 1);
    assert(every_instruction_is_stored_once)
  }
}

// Runs a golden script: a commented list of events, each followed by what the engine must answer. A
// run gives the script back with the answers that the engine really gave, so that checking a script
// is comparing two texts, and rewriting it is saving the second one.
//
//   # a comment; like empty lines it is kept
//   > 0s declare train policy=ssp:1 expected=2     at 0 s; without a time: as the event before it
//   > join a                                       worker "a" on host "node-a", job "train"
//     -> a join: joined #1/0 e1 i1 ...             "->" free to go, "=>" after its records
//   > +1.5s begin a 0                              1.5 s after the event before it
//
// A list in braces makes one line of several that differ in few words (golden_fold.h). An event
// with lists stands for one event for each element; if the answers to these are alike, they are
// folded line by line in the same way:
//
//   > join {a,b}
//     => {a,b} join: joined #1/{0,1} e1 i{1,2} ...
//
// Answers that are not alike stand below an indented line with the event that brought them.
// Adjacent replies to one event that differ only in their worker are folded, too.
//
// Timers that are due before an event fire first, each at its own time; what they bring is shown
// under "@<time>". Events:
//
//   engine [auto_create=off] [durable=off] [snapshot_every=N] [<job setting>...]   first, if at all
//   declare JOB [<job setting>...]      create JOB [policy=P] [expected=N] [min=N]
//   join W [job=J] [policy=P] [rank=R] [world=N] [name=N] [host=H] [inc=I] [granted=K] [pushed=K]
//          [data=TEXT] [notices=BITS] [on=W2]         on=W2: over W2's connection
//          [launch=NAME/NUMBER] [resume=N] [at=K]     at=K: continues at iteration K
//          [exit_grace=T]
//   rejoin W [granted=K] [pushed=K] [inc=I] [rank=R] [phase=NAME left=T]
//                                      as before, and with the incarnation it got
//   begin W K   push W K [loss=X] [samples=N] [bytes=N] [computed=T]   cancel W K   explain W
//   leave W [kind=finished|failed|preempted] [reason="..."]
//   phase W NAME lease=T   phase W end   members W [first=R]
//   restarted W K   targets W K   collect W K   consumed W K   exchange W K [for=T]
//   inspected W [number=N] [text=TEXT]
//     each with [job=#] [rank=R] [epoch=E] [inc=I] [from=W2] in place of what W was given
//   set_policy JOB [policy=]POLICY
//   plan [again=N]      the oldest pending plan is ready, or plan N once more
//   cut W       close W (its own side has closed it)
//   stop JOB [reason="..."]      jobs      workers JOB [first=R]      hello
//   inspect JOB WORKER [stored]
//   store down "why"      store up      shutdown "why"      pass
//   restart [keep=N] [snapshot]   a new engine from the first N records, or the last snapshot on
//   restart empty                 a new engine that knows nothing
//   state JOB      deadline
//
// A job setting is policy=P, expected=N, min=N, start_timeout=T, grace=T, exit_grace=T, warn=T,
// evict=T, hang=T, inspect=on or on_failure=stop.
#pragma once

#include <string>

namespace syncd::test {

// The script with the engine's present answers. On false, `error` names the line that is malformed.
bool run_golden_script(const std::string& script, std::string& result, std::string& error);

}  // namespace syncd::test

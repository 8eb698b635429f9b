/* The C interface of the core: what the Python package and the command line call through ctypes,
   without TensorFlow.

   Functions that can fail return 0 or a tfhybrid::StatusCode; the message of the calling thread's
   last failure is tfhybrid_last_error(). Pointers are borrowed for the call. What is returned lies
   in the caller's buffers; where its size is not known before, a function writes no more than
   there is room for and says in `size` how much there is. Texts end without a zero. Thread-safe,
   but loading functions (write_rows, load_records, set_version) must not run beside a training
   step. */
#ifndef TFHYBRID_CORE_C_API_H_
#define TFHYBRID_CORE_C_API_H_

#include <stdint.h>

#define TFHYBRID_EXPORT __attribute__((visibility("default")))
#define TFHYBRID_TABLE_NAME_BYTES 128 /* the maximum; zeros follow a shorter name */

#ifdef __cplusplus
extern "C" {
#endif

/* tfhybrid::RowPolicy */
typedef struct tfhybrid_row_policy {
  uint32_t kind;
  uint32_t admission;
  uint32_t slices_log2;
  uint32_t frequent_stay;
  int64_t unseen_steps;
  int64_t unseen_time;
  int64_t half_life;
  double min_frequency;
  double min_norm;
  int64_t max_rows;
  int64_t waiting_steps;
} tfhybrid_row_policy;

typedef struct tfhybrid_table_config {
  const char* name;
  int64_t dim;
  uint32_t initializer; /* tfhybrid::InitializerKind */
  double initializer_a;
  double initializer_b;
  uint64_t job_seed;
  tfhybrid_row_policy policy;
  uint32_t placement; /* tfhybrid::PlacementKind */
  int64_t owner;      /* the host that has all rows, where one has */
  const char* files;  /* the directory on a disk that its rows lie in; null or empty: in memory */
  int64_t cache_bytes;
} tfhybrid_table_config;

typedef struct tfhybrid_frozen_table {
  int64_t rows;
  int64_t version;
  int64_t parts;
  int64_t whole;   /* 1 if all rows are in its parts, 0 if only those that changed */
  int64_t removed; /* keys whose rows were removed since what is frozen began to change */
  int64_t event_time;
  double decay; /* see tfhybrid_table_decay */
} tfhybrid_frozen_table;

typedef struct tfhybrid_table_file {
  int64_t rows;
  int64_t bytes;
  uint64_t digest;
  uint32_t crc;
} tfhybrid_table_file;

typedef struct tfhybrid_optimizer_config {
  uint32_t kind; /* tfhybrid::OptimizerKind */
  uint32_t flags;
  float initial_accumulator_value;
  float epsilon;
  double beta_1;
  double beta_2;
  double momentum;
  double rho;
  double l1;
  double l2;
  double l2_shrinkage;
  double beta;
  double weight_decay;
  double penalty_l1;
  double penalty_l2;
} tfhybrid_optimizer_config;

typedef struct tfhybrid_table_stats {
  int64_t rows;
  int64_t version;
  int64_t chunks;
  int64_t index_slots;
  int64_t embedding_bytes;
  int64_t state_bytes;
  int64_t history_bytes;
  int64_t index_bytes;
  int64_t bytes;
  int64_t file_bytes; /* on a disk; this and the next are 0 where rows lie in memory */
  int64_t cache_bytes;
  int64_t cache_hits;
  int64_t cache_misses;
  int64_t written_rows;
  int64_t evicted;
  int64_t keys; /* of this rank's gradients, and how many different ones each of its steps had */
  int64_t distinct_keys;
} tfhybrid_table_stats;

typedef struct tfhybrid_record_schema {
  int64_t header_bytes;
  int64_t record_bytes;
  int64_t key_offset;
  int64_t embedding_offset;
} tfhybrid_record_schema;

TFHYBRID_EXPORT const char* tfhybrid_last_error(void);

/* Engines: a process may open several. `*engine` is the number of one, for the calls below;
   `hosts` has the host of each of the job's ranks, where ranks of a host follow each other; behind
   them come `nodes` embedding nodes, which count as hosts without ranks and own the sharded tables
   where there are some; `host` is this one. A number holds one store after another, and is never
   given again. */
TFHYBRID_EXPORT int tfhybrid_engine_reserve(const int64_t* hosts, int ranks, int64_t nodes,
                                            int64_t host, int64_t* engine);
/* The store of an engine. `reclaimed` receives a description of what dead jobs had left, one
   per line. */
TFHYBRID_EXPORT int tfhybrid_store_open(int64_t engine, const char* shm_directory, const char* job,
                                        int local_rank, const char* description, uint64_t token,
                                        char* reclaimed, int64_t room, int64_t* size);
/* `leave`: not 0 to leave the store behind for a job that is started again. */
TFHYBRID_EXPORT void tfhybrid_store_close(int64_t engine, int leave);
/* The stores of this user on this host, of whatever jobs, in lines of fields with tabs between
   them; texts are %-encoded. Ranks and tables follow their store:
     store  JOB  DIRECTORY  BYTES  PROBLEM
     rank   LOCAL_RANK  STATE (tfhybrid::HolderState)  DESCRIPTION
     table  NAME  PROBLEM  DIM  OPTIMIZER (tfhybrid::OptimizerKind)  and tfhybrid_table_stats, in
            order, up to `evicted` */
TFHYBRID_EXPORT int tfhybrid_report_stores(const char* shm_directory, char* report, int64_t room,
                                           int64_t* size);
/* Removes the store of a job whose processes are all dead. */
TFHYBRID_EXPORT int tfhybrid_remove_store(const char* shm_directory, const char* job,
                                          int64_t* bytes);
/* What became of a rank of this host: `*state` is a tfhybrid::HolderState, `*description` what the
   rank says of itself. */
TFHYBRID_EXPORT int tfhybrid_rank_state(int64_t engine, int local_rank, int* state,
                                        char* description, int64_t room, int64_t* size);
/* How this process ends; see core/process_end.h. */
TFHYBRID_EXPORT int tfhybrid_exit_after(int milliseconds);
TFHYBRID_EXPORT int tfhybrid_linger_after_sigterm(int milliseconds);
/* 1 or 0. */
TFHYBRID_EXPORT int tfhybrid_is_lingering(void);
TFHYBRID_EXPORT int64_t tfhybrid_available_bytes(const char* directory);

/* A restart from memory; see core/update/recovery.h. The leader of each host alone, and before any
   rank opens a table. */
/* Instead of store_open; the others open the store with the token that it has. */
TFHYBRID_EXPORT int tfhybrid_store_recover(int64_t engine, const char* shm_directory,
                                           const char* job, const char* description,
                                           uint64_t* token);
/* "VERSION FILE" of each table, one per line. */
TFHYBRID_EXPORT int tfhybrid_store_versions(int64_t engine, char* versions, int64_t room,
                                            int64_t* size);
/* The same with the digest of each table (tfhybrid_table_digest); 0 for a sharded table. */
TFHYBRID_EXPORT int tfhybrid_store_digests(int64_t engine, char* digests, int64_t room,
                                           int64_t* size);
/* Room and size in words. */
TFHYBRID_EXPORT int tfhybrid_last_updates(int64_t engine, int64_t* updates, int64_t room,
                                          int64_t* size);
TFHYBRID_EXPORT int tfhybrid_roll_forward(int64_t engine, const int64_t* updates, int64_t words);
TFHYBRID_EXPORT int tfhybrid_forget_updates(int64_t engine);

/* What this rank keeps beside the tables; see core/store/kept_state.h. A state is `bytes` bytes:
   the note, then what the op TfhybridKeepState is given. */
TFHYBRID_EXPORT int tfhybrid_kept_make(int64_t engine, const char* configuration, int64_t bytes);
/* What the op writes in front of its tensors from now on, where a state is kept. Not beside a
   step. */
TFHYBRID_EXPORT int tfhybrid_kept_note(int64_t engine, const void* note, int64_t bytes);
TFHYBRID_EXPORT int tfhybrid_kept_forget(int64_t engine);
/* Opens the states that a dead process kept; once more changes nothing. */
TFHYBRID_EXPORT int tfhybrid_kept_find(int64_t engine, char* configuration, int64_t room,
                                       int64_t* size);
/* The steps of states, two at most, that belong to the tables as they are. */
TFHYBRID_EXPORT int tfhybrid_kept_steps(int64_t engine, int64_t* steps, int64_t* count);
/* Reads the state of one of them, and forgets what came after it. */
TFHYBRID_EXPORT int tfhybrid_kept_resume(int64_t engine, int64_t step, void* state, int64_t bytes);

/* Nanoseconds that this process has spent in each tfhybrid::Phase; as many numbers as `phases`. */
TFHYBRID_EXPORT int tfhybrid_phase_times(int phases, int64_t* nanoseconds);
/* Keeps the first `max_spans` stays of threads in phases from now on. */
TFHYBRID_EXPORT int tfhybrid_timeline_start(int64_t max_spans);
/* Those that were kept: tfhybrid::PhaseSpan, at most `room` of them. */
TFHYBRID_EXPORT int tfhybrid_timeline_get(void* spans, int64_t room, int64_t* count);
/* What this process has counted of each tfhybrid::Counter; as many numbers as `counters`. */
TFHYBRID_EXPORT int tfhybrid_counters(int counters, int64_t* counts);

/* Tables, by name. */
TFHYBRID_EXPORT int tfhybrid_table_open(int64_t engine, const tfhybrid_table_config* config,
                                        int timeout_ms);
TFHYBRID_EXPORT int tfhybrid_table_set_optimizer(int64_t engine, const char* table,
                                                 const tfhybrid_optimizer_config* config);
/* On every rank: updates that were opened for the table are refused from now on. The leader forgets
   its optimizer and the state of that, once those that were posted are applied. */
TFHYBRID_EXPORT int tfhybrid_table_forget_optimizer(int64_t engine, const char* table);
/* The leader's: the version at which the optimizer began. */
TFHYBRID_EXPORT int tfhybrid_table_optimizer_start(int64_t engine, const char* table,
                                                   uint64_t* version);
TFHYBRID_EXPORT int tfhybrid_table_stats_get(int64_t engine, const char* table,
                                             tfhybrid_table_stats* stats);
/* Rows whose embedding holds a NaN; reads them all. */
TFHYBRID_EXPORT int tfhybrid_table_count_nan(int64_t engine, const char* table, int64_t* rows);
TFHYBRID_EXPORT int tfhybrid_table_digest(int64_t engine, const char* table, uint64_t* digest);

/* Hosts that own rows of sharded tables: a connected socket to the leader of one, or from a rank of
   one, which the engine owns from then on, also where it fails. `purpose` is a
   tfhybrid::LinkPurpose, `peer` what the other end calls itself. */
TFHYBRID_EXPORT int tfhybrid_owners_connect(int64_t engine, int64_t host, int purpose, int socket,
                                            const char* peer);
TFHYBRID_EXPORT int tfhybrid_owners_serve(int64_t engine, int64_t host, int purpose, int socket,
                                          const char* peer);
/* The name of another host's leader in errors, before there is a connection to it. */
TFHYBRID_EXPORT int tfhybrid_owners_name(int64_t engine, int64_t host, const char* name);
/* This rank reads no more rows of other hosts. */
TFHYBRID_EXPORT int tfhybrid_owners_end_reads(int64_t engine);
/* Ranks of other hosts that may still read this host's rows. */
TFHYBRID_EXPORT int tfhybrid_owners_readers(int64_t engine, int64_t* count);
/* Writes 1 for each key that this host owns, else 0. */
TFHYBRID_EXPORT int tfhybrid_table_owned(int64_t engine, const char* table, int64_t count,
                                         const int64_t* keys, uint8_t* owned);
/* `count` rows at most of a table on another host, from its row `first` on: `*rows` receives how
   many it has, `*bytes` what they take in shared memory, `*read` how many were read. Embeddings are
   [read, dim]. */
TFHYBRID_EXPORT int tfhybrid_owners_scan(int64_t engine, int64_t host, const char* table,
                                         int64_t first, int64_t count, int64_t* rows,
                                         int64_t* bytes, int64_t* read, int64_t* keys,
                                         float* embeddings);

/* Passes: keys that this rank will look up in its next `batches` batches, whose rows come ahead of
   time. Key i of table t is wanted by batch `batch_of[t][i]`, from 0, and maybe others. `*bytes`
   receives what such a pass takes in shared memory, or on this rank's device if that is more. */
TFHYBRID_EXPORT int tfhybrid_pass_weigh(int64_t engine, int tables, const char* const* names,
                                        const int64_t* counts, const int64_t* const* keys,
                                        const int32_t* const* batch_of, int64_t* bytes);
/* Announces it; `refuses`: a lookup of other keys is an error, not a fetch, while it is open. */
TFHYBRID_EXPORT int tfhybrid_pass_announce(int64_t engine, int tables, const char* const* names,
                                           const int64_t* counts, const int64_t* const* keys,
                                           const int32_t* const* batch_of, int64_t batches,
                                           int refuses, int64_t* number);
/* Batch `batch` of it begins, and those before it have ended; so has one when this rank posts. */
TFHYBRID_EXPORT int tfhybrid_pass_begin_batch(int64_t engine, int64_t number, int64_t batch);
/* Ends it, and waits until its memory is given back. Once more does nothing. */
TFHYBRID_EXPORT int tfhybrid_pass_end(int64_t engine, int64_t number);
/* Ends all of this rank; on the leader, of the host. To be called by every rank before rows are
   overwritten from elsewhere. */
TFHYBRID_EXPORT int tfhybrid_passes_end(int64_t engine);

/* Since the store was opened. The first three and the last two are of this rank, the others of its
   host and 0 where this process does not lead it. */
typedef struct {
  int64_t passes; /* announced */
  int64_t hits;   /* distinct keys of lookups that a pass had */
  int64_t misses; /* that it had not */
  int64_t asked;  /* rows that owners were asked for */
  int64_t copied; /* that another pass of the host had */
  int64_t fetched;
  int64_t refreshed;      /* that came because an update had changed them */
  int64_t bytes;          /* of the rows that came */
  int64_t written;        /* rows of sharded tables that updates changed here, on their owner */
  int64_t standing_rows;  /* in the passes of this rank that are open now */
  int64_t standing_bytes; /* what these take in shared memory */
  /* Lookups of this process whose keys were numbered ahead, and others of the same layers. */
  int64_t ahead_hits, ahead_misses;
} tfhybrid_pass_stats;
TFHYBRID_EXPORT int tfhybrid_passes_get(int64_t engine, tfhybrid_pass_stats* stats);
/* The passes of a host, as seen by a process that is not one of its ranks; all 0 without passes. */
typedef struct {
  int64_t standing;  /* passes that are open now */
  int64_t rows;      /* in them */
  int64_t bytes;     /* of shared memory */
  int64_t counts[9]; /* by tfhybrid::PassCounter, of all ranks of the host */
} tfhybrid_pass_report;
TFHYBRID_EXPORT int tfhybrid_report_passes(const char* store_directory,
                                           tfhybrid_pass_report* report);

/* Waits for the updates that this rank has taken part in, then reads. */
TFHYBRID_EXPORT int tfhybrid_table_lookup(int64_t engine, const char* table, int64_t count,
                                          const int64_t* keys, float* embeddings);
/* Likewise outside of training, where keys without a row read zeros if set_unseen says so. */
TFHYBRID_EXPORT int tfhybrid_table_lookup_outside(int64_t engine, const char* table, int64_t count,
                                                  const int64_t* keys, float* embeddings);
/* Whether keys without a row read zeros outside of training, in this process; else they read their
   initial values. */
TFHYBRID_EXPORT int tfhybrid_table_set_unseen(int64_t engine, const char* table, int zeros);
/* Embeddings of several tables as they all were after one update, at or after `min_versions` of
   each (null: as they are), for whoever reads beside training; `keys[t]` has `counts[t]` keys,
   `embeddings[t]` room for as many rows. `versions` receives the version of each table that was
   read. Waits for at most about `timeout_ms`. */
TFHYBRID_EXPORT int tfhybrid_read(int64_t engine, int tables, const char* const* names,
                                  const uint64_t* min_versions, const int64_t* counts,
                                  const int64_t* const* keys, float* const* embeddings,
                                  int timeout_ms, uint64_t* versions);
/* Rows as they lie: in creation order, where none is ever removed. `states` and `histories`
   (tfhybrid::RowHistory) may be null, and must be on ranks that do not lead. */
TFHYBRID_EXPORT int tfhybrid_table_read_rows(int64_t engine, const char* table, int64_t first,
                                             int64_t count, int64_t* keys, float* embeddings,
                                             float* states, void* histories);
/* Rows by key: `found` is 1 for each key that has one. The others' embeddings are their initial
   values, the parts of `states` and `histories` that are theirs stay as they are. */
TFHYBRID_EXPORT int tfhybrid_table_read_keys(int64_t engine, const char* table, int64_t count,
                                             const int64_t* keys, uint8_t* found, float* embeddings,
                                             float* states, void* histories);
/* The leader alone writes; `states` null means fresh state, `histories` null those of rows that
   were updated just now. */
TFHYBRID_EXPORT int tfhybrid_table_write_rows(int64_t engine, const char* table, int64_t count,
                                              const int64_t* keys, const float* embeddings,
                                              const float* states, const void* histories);
/* Removes the rows of those keys that have one; the leader alone. */
TFHYBRID_EXPORT int tfhybrid_table_remove_keys(int64_t engine, const char* table, int64_t count,
                                               const int64_t* keys);
TFHYBRID_EXPORT int tfhybrid_table_clear(int64_t engine, const char* table);
/* Makes room for `rows` rows in all. */
TFHYBRID_EXPORT int tfhybrid_table_reserve(int64_t engine, const char* table, int64_t rows);
TFHYBRID_EXPORT int tfhybrid_table_load_records(int64_t engine, const char* table, const char* path,
                                                const tfhybrid_record_schema* schema,
                                                int64_t* rows);
/* After loading: the leader publishes `version`, to which the optimizer has done the updates since
   `optimizer_start`; the others wait until it has at least that. Going back needs a
   barrier between the leader's call and the others'. */
TFHYBRID_EXPORT int tfhybrid_table_set_version(int64_t engine, const char* table, uint64_t version,
                                               uint64_t optimizer_start);
/* What keys without a row have decayed to, of their initial values; 1 without weight decay. It is
   set on a table that was cleared, by the leader. */
TFHYBRID_EXPORT int tfhybrid_table_decay(int64_t engine, const char* table, double* decay);
TFHYBRID_EXPORT int tfhybrid_table_set_decay(int64_t engine, const char* table, double decay);
/* After loading: sets the event time that the table had. The leader alone. */
TFHYBRID_EXPORT int tfhybrid_table_set_event_time(int64_t engine, const char* table, int64_t time);

/* Updates, without TensorFlow; see core/engine/engine.h. */
typedef struct tfhybrid_update_config {
  const char* name; /* equal on all ranks */
  int tables;
  const char* const* table_names; /* of tables that are open, each once */
  const char* exchange;           /* these as in tfhybrid.DistributedOptimizer */
  const char* reduction;
  const char* wire_dtype;
  const char* clipping;
  float clip_limit;
  int64_t steps; /* that the job has done of it, if this node replaces an embedding node */
} tfhybrid_update_config;

/* What a rank brings to a step: counts[t] keys of table t, in any order, as often as they occur,
   and a gradient of each, [counts[t], dim]. */
typedef struct tfhybrid_contribution {
  const int64_t* counts;
  const int64_t* const* keys;
  const float* const* gradients;
  int64_t samples;
  int64_t event_time;  /* the least int64 if unknown */
  int skip;            /* not 0: a gradient is not finite, and nobody applies this update */
  const char* failure; /* null, or why there are no gradients */
} tfhybrid_contribution;

/* `*update` is its number, for the calls below. */
TFHYBRID_EXPORT int tfhybrid_update_open(int64_t engine, const tfhybrid_update_config* config,
                                         int64_t* update);
/* How many steps of an update with sharded tables this leader has begun. */
TFHYBRID_EXPORT int tfhybrid_update_steps(int64_t engine, int64_t update, int64_t* steps);
/* Posts, once the tables have what was posted before; where no other host takes part, the leader
   then applies the posts of all its ranks. Nobody waits for that: see tfhybrid_table_wait(). */
TFHYBRID_EXPORT int tfhybrid_update_post(int64_t engine, int64_t update,
                                         const tfhybrid_contribution* contribution,
                                         const float* learning_rates);
/* Where hosts take part, their leaders alone, after their own posts. Waits for the posts of this
   host's ranks and merges them; `words` receives the size of the message for each host: with
   exchange "leaders" one, for all. */
TFHYBRID_EXPORT int tfhybrid_update_merge(int64_t engine, int64_t update, int64_t* words,
                                          int64_t room, int64_t* size);
/* With exchange "owner": merges what the leaders have sent to this one, end to end by host. */
TFHYBRID_EXPORT int tfhybrid_update_merge_owned(int64_t engine, int64_t update,
                                                const int64_t* messages, int64_t words,
                                                int64_t* merged_words);
/* Copies what was merged last, in as many words as the merge said. */
TFHYBRID_EXPORT int tfhybrid_update_merged(int64_t engine, int64_t update, int64_t* words,
                                           int64_t room, int64_t* size);
/* Plans what the leaders say, end to end by host, and makes room for it. `complaint` is why this
   host cannot apply it, empty if it can; where `*vote` is not 0 the others' complaints count too.
   All hosts then commit the same text. */
TFHYBRID_EXPORT int tfhybrid_update_stage(int64_t engine, int64_t update, const int64_t* messages,
                                          int64_t words, int* vote, char* complaint, int64_t room,
                                          int64_t* size);
TFHYBRID_EXPORT int tfhybrid_update_commit(int64_t engine, int64_t update, const char* complaint,
                                           const float* learning_rates);
/* With exchange "all_ranks", instead of all the above: packs this rank's message, where there is
   room for all of it. */
TFHYBRID_EXPORT int tfhybrid_update_pack(int64_t engine, int64_t update,
                                         const tfhybrid_contribution* contribution, int64_t* words,
                                         int64_t room, int64_t* size);
/* Every rank then brings the messages of all ranks, end to end. */
TFHYBRID_EXPORT int tfhybrid_update_apply_gathered(int64_t engine, int64_t update,
                                                   const int64_t* messages, int64_t words,
                                                   const float* learning_rates);
/* Waits until a table has the updates that this rank has taken part in, and returns why one of
   them failed. While hosts commit, ranks that do not lead need no other call. */
TFHYBRID_EXPORT int tfhybrid_table_wait(int64_t engine, const char* table);

/* tfhybrid::MeetingProgress */
typedef struct tfhybrid_meeting_progress {
  uint64_t begun;
  uint64_t ended;
  uint64_t signature;
  uint64_t ordinal;
  uint64_t waits_begun;
  uint64_t waits_ended;
} tfhybrid_meeting_progress;

/* Meetings of all ranks; see core/engine/meetings.h. */
TFHYBRID_EXPORT int tfhybrid_meeting_begin(int64_t engine, uint64_t signature, uint64_t series,
                                           uint64_t* number);
TFHYBRID_EXPORT int tfhybrid_meeting_end(int64_t engine, uint64_t number);
TFHYBRID_EXPORT int tfhybrid_meeting_progress_get(int64_t engine,
                                                  tfhybrid_meeting_progress* progress);
/* What it waits for outside of meetings, where that is known; as tfhybrid_rank_state(). */
TFHYBRID_EXPORT int tfhybrid_meeting_awaited(int64_t engine, char* awaited, int64_t room,
                                             int64_t* size);

/* Saving during training; the leader alone. A table is frozen between two steps; its
   parts can then be written by several threads during updates; it is thawed in the end. With
   `only_changed`, and where a cursor of that name is tracked, only rows that changed since it began
   are frozen. Freezing begins the cursor anew; what it took from it can be returned until the table
   is thawed. A cursor of no name is never tracked. */
TFHYBRID_EXPORT int tfhybrid_table_track_changes(int64_t engine, const char* table,
                                                 const char* cursor);
TFHYBRID_EXPORT int tfhybrid_table_freeze(int64_t engine, const char* table, const char* cursor,
                                          int only_changed, tfhybrid_frozen_table* frozen);
TFHYBRID_EXPORT int tfhybrid_table_return_changes(int64_t engine, const char* table);
/* Each part once; without a path it is only described. */
TFHYBRID_EXPORT int tfhybrid_table_write_part(int64_t engine, const char* table, int64_t part,
                                              const char* path, tfhybrid_table_file* file);
/* Copies the removed keys; tfhybrid_frozen_table.removed says how many. */
TFHYBRID_EXPORT int tfhybrid_table_removed_keys(int64_t engine, const char* table, int64_t* keys);
TFHYBRID_EXPORT int tfhybrid_table_thaw(int64_t engine, const char* table);

/* Pure functions. */
TFHYBRID_EXPORT int tfhybrid_initial_rows(uint32_t initializer, double a, double b,
                                          uint64_t table_seed, int64_t count, const int64_t* keys,
                                          int64_t dim, float* embeddings);
TFHYBRID_EXPORT uint64_t tfhybrid_table_seed(uint64_t job_seed, const char* table);
/* What rows add to a table's digest (tfhybrid_table_digest); no `histories` where tables keep none.
 */
TFHYBRID_EXPORT uint64_t tfhybrid_rows_digest(const int64_t* keys, int64_t rows,
                                              const float* embeddings, int64_t dim,
                                              const float* states, int64_t state_floats,
                                              const void* histories);
TFHYBRID_EXPORT uint32_t tfhybrid_crc32c(const void* data, int64_t size, uint32_t seed);

#ifdef __cplusplus
}
#endif

#endif /* TFHYBRID_CORE_C_API_H_ */

/* The C interface of batches that data nodes split; all of core/c_api.h holds for it. */
#ifndef TFHYBRID_CORE_C_API_BATCHES_H_
#define TFHYBRID_CORE_C_API_BATCHES_H_

#include <stdint.h>

#include "core/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A data node's, without an engine (core/placement/key_handle.h): `parts` arrays of keys of a
   table, `keys[p]` with `counts[p]` keys, become key handles of `ticket`, one for each key. Hosts
   [first_owner, hosts) own the table, which lies as of a tfhybrid_table_config. `distinct`, with
   room for all keys, receives those of each owner, owner by owner, and `owned`, with room for
   hosts - first_owner numbers, how many each has. */
TFHYBRID_EXPORT int tfhybrid_key_handles_make(const char* table, uint32_t placement, int64_t owner,
                                              int64_t first_owner, int64_t hosts, int64_t ticket,
                                              int parts, const int64_t* counts,
                                              const int64_t* const* keys, int64_t* const* handles,
                                              int64_t* distinct, int64_t* owned);
/* A trainer's: from now on features are looked up, and tables updated, by key handles. */
TFHYBRID_EXPORT int tfhybrid_key_handles_use(int64_t engine);
/* Waits for the updates that this rank has taken part in, less those that the rows may lack, then
   looks up key handles of several tables at once. `outside`: of training, see
   tfhybrid_table_lookup_outside. */
TFHYBRID_EXPORT int tfhybrid_key_handles_lookup(int64_t engine, int outside, int tables,
                                                const char* const* names, const int64_t* counts,
                                                const int64_t* const* handles,
                                                float* const* embeddings);
/* Tickets that this rank has looked up since it last asked; `room` at most, `*tickets_count` of
   them. */
TFHYBRID_EXPORT int tfhybrid_key_handles_looked_up(int64_t engine, int64_t room, int64_t* tickets,
                                                   int64_t* tickets_count);
/* The versions of rows that this rank has looked up by key handles and that may lack updates,
   oldest first; `room` at most, `*count` of them. Of each: the name of the table, in
   TFHYBRID_TABLE_NAME_BYTES, and the ticket, the owner, the version with every update before the
   batch, and the version of the rows. */
TFHYBRID_EXPORT int tfhybrid_key_handles_reads(int64_t engine, int64_t room, char* tables,
                                               int64_t* numbers, int64_t* count);
/* An embedding node's: its keys of a batch, which stay until they are dropped. Their rows may lack
   `staleness` updates. */
TFHYBRID_EXPORT int tfhybrid_batch_put(int64_t engine, int64_t ticket, const char* id,
                                       const char* digest, int64_t rank, int trains,
                                       uint64_t staleness, int tables, const char* const* names,
                                       const int64_t* counts, const int64_t* const* keys);
TFHYBRID_EXPORT int tfhybrid_batch_drop(int64_t engine, int64_t count, const int64_t* tickets);
/* Rows that an embedding node sends to trainers unasked, over a connected socket that the engine
   owns from then on: the node's end, to a rank, and the trainer's, to an owner. */
TFHYBRID_EXPORT int tfhybrid_rows_send(int64_t engine, int64_t rank, int socket, const char* peer);
TFHYBRID_EXPORT int tfhybrid_rows_receive(int64_t engine, int64_t owner, int socket,
                                          const char* peer);
/* The node's: sends a rank the rows of a batch, once each table lacks no more updates of the
   version that is named than it may. */
TFHYBRID_EXPORT int tfhybrid_batch_send(int64_t engine, int64_t rank, int64_t ticket, int tables,
                                        const char* const* names, const uint64_t* versions);
/* The trainer's: all owners will do so for these tables, and rows of all tables may lack
   `staleness` updates; and it needs what they sent no longer. */
TFHYBRID_EXPORT int tfhybrid_batch_expect(int64_t engine, int64_t ticket, uint64_t staleness,
                                          int tables, const char* const* names,
                                          const uint64_t* versions);
/* It asks for the rows of all batches that it was told of so far: others have them now. */
TFHYBRID_EXPORT int tfhybrid_batches_ask(int64_t engine);
TFHYBRID_EXPORT int tfhybrid_batch_forget(int64_t engine, int64_t count, const int64_t* tickets);
TFHYBRID_EXPORT int tfhybrid_batches_held(int64_t engine, int64_t* batches, int64_t* bytes);
/* All batches that a node holds, as `*size` words; and puts what such words say, on the node that
   has their rows from now on. */
TFHYBRID_EXPORT int tfhybrid_batches_copy(int64_t engine, int64_t room, int64_t* words,
                                          int64_t* size);
TFHYBRID_EXPORT int tfhybrid_batches_put(int64_t engine, int64_t size, const int64_t* words);

#ifdef __cplusplus
}
#endif

#endif /* TFHYBRID_CORE_C_API_BATCHES_H_ */

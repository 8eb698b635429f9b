// The C interface of hosts that own rows of sharded tables.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/c_api_socket.h"
#include "core/engine/engine_registry.h"

using tfhybrid::Engine;
using tfhybrid::LinkPurpose;
using tfhybrid::OfferedSocket;
using tfhybrid::Status;

int tfhybrid_owners_connect(int64_t engine, int64_t host, int purpose, int socket,
                            const char* peer) {
  OfferedSocket offered(socket);
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->CheckOtherHost(host));
    its->Connect(host, static_cast<LinkPurpose>(purpose), offered.Take(), peer);
    return Status::Ok();
  });
}

int tfhybrid_owners_serve(int64_t engine, int64_t host, int purpose, int socket, const char* peer) {
  OfferedSocket offered(socket);
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->CheckOtherHost(host));
    its->Serve(host, static_cast<LinkPurpose>(purpose), offered.Take(), peer);
    return Status::Ok();
  });
}

int tfhybrid_owners_end_reads(int64_t engine) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    its->EndReads();
    return Status::Ok();
  });
}

int tfhybrid_owners_readers(int64_t engine, int64_t* count) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    *count = its->CountOfReaders();
    return Status::Ok();
  });
}

int tfhybrid_owners_scan(int64_t engine, int64_t host, const char* table, int64_t first,
                         int64_t count, int64_t* rows, int64_t* bytes, int64_t* read, int64_t* keys,
                         float* embeddings) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<tfhybrid::OpenTable> open, its->Table(table));
    TFHYBRID_ASSIGN_OR_RETURN(const Engine::Scanned scanned,
                              its->Scan(host, {table, open->reader->dim(), first, count}));
    *rows = scanned.table_rows;
    *bytes = scanned.table_bytes;
    *read = static_cast<int64_t>(scanned.keys.size());
    std::copy(scanned.keys.begin(), scanned.keys.end(), keys);
    std::copy(scanned.embeddings.begin(), scanned.embeddings.end(), embeddings);
    return Status::Ok();
  });
}

int tfhybrid_table_owned(int64_t engine, const char* table, int64_t count, const int64_t* keys,
                         uint8_t* owned) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    const std::function<bool(int64_t key)> owns = its->OwnsOf(table);
    for (int64_t i = 0; i < count; ++i) owned[i] = owns == nullptr || owns(keys[i]) ? 1 : 0;
    return Status::Ok();
  });
}

// Checks of what a new leader finds in the pages of a dead one's rows that no leader has written.
//
// Whatever wrote to the store's files since, rows have no checksums: they would cost each update as
// much as its optimizer. But updates leave traces that a zeroed or a foreign page has not.
#ifndef TFHYBRID_CORE_STORE_TABLE_PAGES_H_
#define TFHYBRID_CORE_STORE_TABLE_PAGES_H_

#include "core/store/row_chunks.h"
#include "core/store/table_page.h"
#include "core/util/status.h"

namespace tfhybrid {

// For a table of a dead leader: an error if a page of rows holds what no update left there.
Status CheckPages(const TablePage& page, const RowChunks& chunks);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_PAGES_H_

// Included by matmul_float.c and matmul_double.c, which define REAL, NAME(x), GEMM (the BLAS
// function), TILE and TILE_COLUMNS (of struct parallel_tiles), load_run and store_run: the product
// in blocks of that type. The loops over blocks are those of K. Goto, R. van de Geijn: Anatomy of
// High-Performance Matrix Multiplication, 2008. SPDX-License-Identifier: Apache-2.0

// One operand: op(X)[row][column] lies at data[row * row_stride + column * column_stride].
struct side {
    const void *data;
    ncclDataType_t type;
    size_t row_stride, column_stride;
};

struct blocks {
    REAL *a, *b;     // [BLOCK x BLOCK] each
    REAL *c;         // where the block column of C is summed up
    size_t stride_c; // of it
    struct side side_a, side_b;
    const struct matmul *m;
    const struct parallel_tiles *tiles;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// For the BLAS library: a block in which rows lie as in the matrix, BLOCK elements apart.
static void convert_block(const struct side *side, size_t row, size_t rows, size_t column,
                          size_t columns, REAL *out)
{
    int is_transposed = side->column_stride != 1;
    size_t lines = is_transposed ? columns : rows, length = is_transposed ? rows : columns;
    size_t stride = is_transposed ? side->column_stride : side->row_stride;
    size_t first = row * side->row_stride + column * side->column_stride;
    for (size_t i = 0; i < lines; i++) {
        load_run(side->data, side->type, first + i * stride, 1, length, out + i * BLOCK, 1);
    }
}

// For our own loop: op(X)'s block in strips of `width` rows (A) or columns (B), of which each
// holds, for one p after the other, its `width` elements; zeros fill the last strip. `across` runs
// along the strip's width, `along` over p.
static void lay_out_strips(const struct side *side, const size_t first[2], size_t across,
                           size_t along, size_t width, REAL *out)
{
    size_t stride_across = side->row_stride, stride_along = side->column_stride;
    size_t start = first[0] * side->row_stride + first[1] * side->column_stride;
    for (size_t s = 0; s < across; s += width, out += width * along) {
        size_t have = least(width, across - s);
        if (stride_across == 1) {
            for (size_t p = 0; p < along; p++) {
                load_run(side->data, side->type, start + s + p * stride_along, 1, have,
                         out + p * width, 1);
            }
        } else {
            for (size_t i = 0; i < have; i++) {
                load_run(side->data, side->type, start + (s + i) * stride_across, stride_along,
                         along, out + i, width);
            }
        }
        for (size_t i = have; i < width; i++) {
            for (size_t p = 0; p < along; p++) {
                out[p * width + i] = 0;
            }
        }
    }
}

// The same of B, whose strips are of columns.
static struct side turned(const struct side *side)
{
    return (struct side){side->data, side->type, side->column_stride, side->row_stride};
}

// c[down x across] += alpha * tile.
static void add_tile(const struct blocks *blocks, const REAL *tile, size_t down, size_t across,
                     REAL *c)
{
    const size_t width = blocks->tiles->TILE_COLUMNS;
    const REAL alpha = (REAL)blocks->m->product.alpha;
    for (size_t y = 0; y < down; y++) {
        REAL *to = c + y * blocks->stride_c;
        for (size_t x = 0; x < across; x++) {
            to[x] += alpha * tile[y * width + x];
        }
    }
}

// c[rows x columns] += alpha * strips of A * strips of B.
static void multiply_strips(const struct blocks *blocks, size_t rows, size_t columns, size_t inner,
                            REAL *c)
{
    const size_t width = blocks->tiles->TILE_COLUMNS;
    REAL tile[TILE_ROWS * TILE_COLUMNS_MOST];
    for (size_t j = 0; j < columns; j += width) {
        size_t across = least(width, columns - j);
        for (size_t i = 0; i < rows; i += TILE_ROWS) {
            size_t down = least(TILE_ROWS, rows - i);
            blocks->tiles->TILE(inner, blocks->a + i * inner, blocks->b + j * inner, tile);
            add_tile(blocks, tile, down, across, c + i * blocks->stride_c + j);
        }
    }
}

// One block of A times the block of B that is there, added to c.
static void multiply_block(const struct blocks *blocks, const size_t at[3], const size_t size[3],
                           REAL *c)
{
    const struct matmul *m = blocks->m;
    if (blocks->m->blas->GEMM != NULL) {
        convert_block(&blocks->side_a, at[0], size[0], at[2], size[2], blocks->a);
        m->blas->GEMM(BLAS_ROW_MAJOR,
                      blocks->side_a.column_stride == 1 ? BLAS_AS_IT_LIES : BLAS_TRANSPOSED,
                      blocks->side_b.column_stride == 1 ? BLAS_AS_IT_LIES : BLAS_TRANSPOSED,
                      (int)size[0], (int)size[1], (int)size[2], (REAL)m->product.alpha, blocks->a,
                      BLOCK, blocks->b, BLOCK, 1, c, (int)blocks->stride_c);
        return;
    }
    lay_out_strips(&blocks->side_a, (const size_t[2]){at[0], at[2]}, size[0], size[2], TILE_ROWS,
                   blocks->a);
    multiply_strips(blocks, size[0], size[1], size[2], c);
}

// beta * C[rows x columns from `first` on], where the block column is summed up.
static void begin_columns(const struct blocks *blocks, size_t first, size_t columns)
{
    const struct tuttiProduct *p = &blocks->m->product;
    const REAL beta = (REAL)p->beta;
    for (size_t i = 0; i < p->rows; i++) {
        REAL *to = blocks->c + i * blocks->stride_c;
        if (p->beta == 0) {
            memset(to, 0, columns * sizeof(REAL));
            continue;
        }
        load_run(blocks->m->c, p->typeC, i * p->strideC + first, 1, columns, to, 1);
        for (size_t j = 0; j < columns; j++) {
            to[j] *= beta;
        }
    }
}

static void multiply_columns(struct blocks *blocks, size_t first, size_t columns)
{
    const struct tuttiProduct *product = &blocks->m->product;
    const struct side turned_b = turned(&blocks->side_b);
    begin_columns(blocks, first, columns);
    for (size_t p = 0; p < product->inner; p += BLOCK) {
        size_t inner = least(BLOCK, product->inner - p);
        if (blocks->m->blas->GEMM != NULL) {
            convert_block(&blocks->side_b, p, inner, first, columns, blocks->b);
        } else {
            lay_out_strips(&turned_b, (const size_t[2]){first, p}, columns, inner,
                           blocks->tiles->TILE_COLUMNS, blocks->b);
        }
        for (size_t i = 0; i < product->rows; i += BLOCK) {
            size_t rows = least(BLOCK, product->rows - i);
            multiply_block(blocks, (const size_t[3]){i, first, p},
                           (const size_t[3]){rows, columns, inner},
                           blocks->c + i * blocks->stride_c);
        }
    }
}

ncclResult_t NAME(parallel_matmul)(const struct matmul *m)
{
    const struct tuttiProduct *p = &m->product;
    const size_t block = (size_t)BLOCK * BLOCK;
    // bf16 is summed up in float, elsewhere; as are rows too far apart for the BLAS library.
    bool is_apart = p->typeC == ncclBfloat16 || p->strideC > INT_MAX;
    size_t elements = 2 * block + (is_apart ? p->rows * least(p->columns, BLOCK) : 0);
    REAL *memory = malloc(elements * sizeof(REAL));
    if (memory == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMatmul: no memory for blocks of %zu bytes",
                         elements * sizeof(REAL));
    }
    struct blocks blocks = {memory, memory + block, NULL, 0, {0}, {0}, m, parallel_tiles()};
    blocks.side_a = (struct side){m->a, p->typeA, p->strideA, 1};
    blocks.side_b = (struct side){m->b, p->typeB, p->strideB, 1};
    blocks.side_a = p->transposeA ? turned(&blocks.side_a) : blocks.side_a;
    blocks.side_b = p->transposeB ? turned(&blocks.side_b) : blocks.side_b;
    for (size_t j = 0; j < p->columns; j += BLOCK) {
        size_t columns = least(BLOCK, p->columns - j);
        blocks.c = is_apart ? memory + 2 * block : (REAL *)m->c + j;
        blocks.stride_c = is_apart ? columns : p->strideC;
        multiply_columns(&blocks, j, columns);
        for (size_t i = 0; is_apart && i < p->rows; i++) {
            store_run(m->c, p->typeC, i * p->strideC + j, columns, blocks.c + i * columns);
        }
    }
    free(memory);
    return ncclSuccess;
}

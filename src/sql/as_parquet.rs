//! Rows as a Parquet file.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::{SqlAnswer, SqlError};

impl SqlAnswer {
    /// Writes the rows as a Parquet file, uncompressed. A column of whole numbers is INT64, one of numbers DOUBLE, any
    /// other a string; all may be null.
    ///
    /// # Errors
    /// Two columns have the same name, or the file can't be written.
    pub fn write_parquet(&self, to: impl Write + Send) -> Result<(), SqlError> {
        let mut names: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SqlError::invalid(format!("two columns are called {:?}; rename one with AS", twice[0])));
        }
        self.written(to).map_err(|error| SqlError::invalid(format!("failed to write the Parquet file: {error}")))
    }

    fn written(&self, to: impl Write + Send) -> Result<(), ParquetError> {
        let types: Vec<PhysicalType> = (0..self.columns.len()).map(|at| self.type_of(at)).collect();
        let fields = self.columns.iter().zip(&types).map(|(name, kind)| field(name, *kind));
        let schema = Type::group_type_builder("rows").with_fields(fields.collect::<Result<_, _>>()?).build()?;
        let mut writer = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(WriterProperties::default()))?;
        let mut group = writer.next_row_group()?;
        let mut at = 0;
        while let Some(mut column) = group.next_column()? {
            let cells = || self.rows.iter().map(|row| &row[at]);
            let levels: Vec<i16> = cells().map(|cell| i16::from(!cell.is_null())).collect();
            let levels = Some(levels.as_slice());
            match types[at] {
                PhysicalType::INT64 => {
                    let values: Vec<i64> = cells().filter_map(Value::as_i64).collect();
                    column.typed::<Int64Type>().write_batch(&values, levels, None)?;
                }
                PhysicalType::DOUBLE => {
                    let values: Vec<f64> = cells().filter_map(Value::as_f64).collect();
                    column.typed::<DoubleType>().write_batch(&values, levels, None)?;
                }
                _ => {
                    let text = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
                    let texts =
                        cells().filter(|cell| !cell.is_null()).map(|cell| ByteArray::from(text(cell).into_bytes()));
                    column.typed::<ByteArrayType>().write_batch(&texts.collect::<Vec<_>>(), levels, None)?;
                }
            }
            column.close()?;
            at += 1;
        }
        group.close()?;
        writer.close().map(drop)
    }

    fn type_of(&self, at: usize) -> PhysicalType {
        let cells = || self.rows.iter().map(|row| &row[at]).filter(|cell| !cell.is_null());
        if cells().next().is_none() || !cells().all(Value::is_number) {
            return PhysicalType::BYTE_ARRAY;
        }
        if cells().all(Value::is_i64) { PhysicalType::INT64 } else { PhysicalType::DOUBLE }
    }
}

fn field(name: &str, kind: PhysicalType) -> Result<TypePtr, ParquetError> {
    let text = (kind == PhysicalType::BYTE_ARRAY).then_some(LogicalType::String);
    let field = Type::primitive_type_builder(name, kind).with_repetition(Repetition::OPTIONAL);
    Ok(Arc::new(field.with_logical_type(text).build()?))
}
